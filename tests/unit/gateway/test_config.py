"""The settings of a gateway: what is allowed, and what is said when it is not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gateway.config import GatewayConfig
from gateway.main import parse


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
    with pytest.raises(ValueError, match=f"^{next(iter(bad))}: must be "):
        GatewayConfig(**bad)


def test_a_bad_flag_ends_the_program_with_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["--lease", "0"])

    assert caught.value.code == 2
    assert (
        capsys.readouterr().err
        == "gateway: lease: must be a number above 0, at most 86400 (seconds); is '0' (flag --lease)\n"
    )
