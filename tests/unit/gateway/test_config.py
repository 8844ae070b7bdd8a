"""Settings and flags: what is allowed, what is said when it is not, and that each has a flag."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from gateway.config import GatewayConfig
from gateway.main import parse


def test_every_setting_has_a_flag() -> None:
    wanted = GatewayConfig(
        listen="0.0.0.0:1",
        redis_url="unix:///run/redis",
        max_queued=1,
        lease=2.0,
        default_deadline=3.0,
        max_deadline=4.0,
        max_prompt_chars=5,
        dispatch_rate=6,
        reap_interval=7.0,
        cancel_wait=0.0,
        grace=9.0,
    )
    defaults = GatewayConfig()
    for field in dataclasses.fields(wanted):
        assert getattr(wanted, field.name) != getattr(defaults, field.name), "a change to tell by"
    arguments = [f"--{name.replace('_', '-')}={value}" for name, value in dataclasses.asdict(wanted).items()]

    assert parse(arguments) == (wanted, None)
    assert parse([]) == (defaults, None)
    assert parse(["--log-level", "debug"])[1] == "debug"


@pytest.mark.parametrize(
    "bad",
    [
        {"max_queued": 0},
        {"max_prompt_chars": 0},
        {"dispatch_rate": -1},
        {"lease": 0.0},
        {"lease": math.nan},
        {"reap_interval": -0.1},
        {"cancel_wait": -1.0},
        {"grace": math.nan},
        {"max_deadline": 86400.1},
        {"max_deadline": 0.0},
        {"default_deadline": 0.0},
        {"default_deadline": 601.0, "max_deadline": 600.0},
    ],
    ids=str,
)
def test_a_bad_setting_is_named(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(bad))} must be "):
        GatewayConfig(**bad)


def test_a_bad_flag_ends_the_program_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--lease", "0"])

    assert caught.value.code == 2
    assert "lease must be above 0 seconds, is 0.0" in capsys.readouterr().err
