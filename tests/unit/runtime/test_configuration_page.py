"""docs/configuration.md says what is so: its tables, its example, its messages, its names of services."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.config import GatewayConfig
from gateway.main import SERVICES
from prm_worker.scoring_service import SERVICE
from tests.unit.runtime.test_config import KINDS
from thoughtbeam.runtime.config import ConfigError, load

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "configuration.md").read_text()


def test_the_tables_are_those_of_the_programs() -> None:
    command = [sys.executable, "scripts/gen_configuration.py", "--check"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


@pytest.fixture
def example(tmp_path: Path) -> Path:
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "thoughtbeam.toml"
    path.write_text(block)
    return path


@pytest.mark.parametrize("program", KINDS)
def test_the_example_is_a_configuration_of_every_program(program: str, example: Path) -> None:
    found = load(program, KINDS[program], ["--config", str(example)])

    assert found.settings.log_format == "json"
    assert sum(source.startswith("file ") for source in found.sources.values()) >= 4


def test_the_messages_are_those_of_the_program(tmp_path: Path) -> None:
    quoted = re.findall(r"^gateway: (.*)$", PAGE, re.MULTILINE)
    bad = tmp_path / "thoughtbeam.toml"
    bad.write_text("[gateway]\nmax_queud = 1")
    said = []
    for arguments, environment in (
        ([], {"THOUGHTBEAM_GATEWAY_MAX_QUEUED": "x"}),
        (["--config", str(bad)], {}),
    ):
        with pytest.raises(ConfigError) as caught:
            load("gateway", GatewayConfig, arguments, environment)
        said.append(str(caught.value).replace(str(bad), bad.name))

    assert said == quoted


def test_what_is_printed_is_what_the_page_shows() -> None:
    printed = load(
        "gateway", GatewayConfig, ["--max-queued", "500"], {"THOUGHTBEAM_LOG_LEVEL": "debug"}
    ).as_toml()
    (block,) = re.findall(r"```\n\$ THOUGHTBEAM_LOG_LEVEL=debug .*?\n(.*?)```", PAGE, re.DOTALL)

    lines = [line for line in block.splitlines() if line != "…"]
    assert len(lines) == 5
    assert set(lines) <= set(printed.splitlines())


def test_the_services_are_those_of_the_programs() -> None:
    assert {*re.findall(r"`(thoughtbeam\.[\w.]*Service)`", PAGE)} == {*SERVICES, SERVICE}
