"""What the programs make of the environments that compose.yaml gives them: they refuse what they do not
know."""

from __future__ import annotations

import functools
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.compose import dockerfile, file
from tests.unit.compose.test_file import OURS, SERVICES

# what a program's own flags and variables are called after
PROGRAMS = {
    "gateway": "gateway",
    "prm-worker": "prm_worker",
    "decoder-cpu": "decoder_worker",
    "decoder-gpu": "decoder_worker",
}
BIN = str(Path(sys.executable).parent)
# between the last second of a grace and the moment when the program is gone
MARGIN = 5.0


def effective(service: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a service's program, of all sections, as it prints them."""
    return _printed(service["build"]["target"], tuple(service["environment"].items()))


@functools.cache
def _printed(target: str, variables: tuple[tuple[str, str], ...]) -> Mapping[str, Any]:
    image = dockerfile.image(target)
    run = subprocess.run(
        [*image.entrypoint, "--print-config"],
        cwd="/",
        env={**image.environment, **dict(variables), "PATH": BIN},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    printed = tomllib.loads(run.stdout)
    return {name: value for section in printed.values() for name, value in section.items()}


@pytest.mark.parametrize("name", OURS)
def test_a_program_accepts_its_environment_and_shows_every_value_of_it(name: str) -> None:
    service = SERVICES[name]
    program = PROGRAMS[service["build"]["target"]]
    settings = effective(service)
    compared = 0
    for variable, value in service["environment"].items():
        if variable.startswith("THOUGHTBEAM_") and variable != "THOUGHTBEAM_ENDPOINT" and value:
            setting = variable.removeprefix("THOUGHTBEAM_").removeprefix(f"{program.upper()}_").lower()
            shown = settings[setting]
            assert (str(shown) if isinstance(shown, str) else f"{shown:g}") == value, variable
            compared += 1
    assert compared >= 4


@pytest.mark.parametrize("name", OURS)
def test_a_program_may_end_by_itself_before_it_is_killed(name: str) -> None:
    settings = effective(SERVICES[name])
    (takes,) = (settings[key] for key in ("drain_seconds", "grace") if key in settings)
    assert file.seconds(SERVICES[name]["stop_grace_period"]) >= takes + MARGIN


def test_a_decoder_worker_runs_without_a_scorer_when_it_is_told_so() -> None:
    service = file.load({"TB_SCORER_ADDRESS": "", "TB_PRM_WORKERS": "0"})["services"]
    assert effective(service["decoder-gpu0"])["scorer"] == ""
    assert service["prm-worker"]["scale"] == "0"


@pytest.mark.parametrize("name", ["gateway", "decoder-gpu0", "prm-worker"])
def test_a_variable_that_the_program_does_not_know_would_be_found(name: str) -> None:
    service = SERVICES[name]
    unknown = f"THOUGHTBEAM_{PROGRAMS[service['build']['target']].upper()}_MAX_QUEUE"
    with pytest.raises(AssertionError, match=unknown):
        effective({**service, "environment": {**service["environment"], unknown: "5"}})


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_is_asked_for_its_health_where_it_listens(name: str) -> None:
    service = SERVICES[name]
    if name == "redis":
        return
    (listen,) = (v for k, v in service["environment"].items() if k.endswith("_LISTEN"))
    assert service["healthcheck"]["test"][-1].partition(":")[2] == listen.partition(":")[2]


def test_a_health_command_tells_that_nothing_serves() -> None:
    command = SERVICES["gateway"]["healthcheck"]["test"][1:-1]
    run = subprocess.run(
        [*command, "127.0.0.1:1"], cwd="/", env={"PATH": BIN}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "127.0.0.1:1" in run.stdout + run.stderr
