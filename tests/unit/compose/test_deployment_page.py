"""docs/deployment.md names only what there is."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import yaml

from tests.compose import dockerfile, file
from tests.compose.file import ROOT
from tests.unit.compose.test_file import SERVICES

PAGE = (ROOT / "docs" / "deployment.md").read_text()
BLOCKS = re.findall(r"^( *)```(\w*)\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
SHELL = [text for _, language, text in BLOCKS if language == "" and re.match(r"\s*[a-z]+\b", text)]


def test_variables_and_services_of_the_page_exist() -> None:
    variables = set(re.findall(r"\b(?:TB|PIP|COMPOSE)_[A-Z_]+", PAGE))
    assert variables <= file.example_values().keys()
    assert len(variables) > 12
    named = re.findall(
        r"docker compose (?:exec|logs|stop|up|run)(?: -(?:\w|-[\w-]+))* ([a-z][a-z0-9-]*)", PAGE
    )
    assert {"gateway", "redis", "decoder-gpu0"} <= set(named) <= SERVICES.keys()


def test_shell_commands_of_the_page_can_be_parsed() -> None:
    assert len(SHELL) > 8
    for text in SHELL:
        run = subprocess.run(["sh", "-n", "-c", text], capture_output=True, text=True, check=False)
        assert run.returncode == 0, f"{text}{run.stderr}"


def test_overrides_of_the_page_are_yaml_about_services_that_exist() -> None:
    class Loader(yaml.SafeLoader):
        """With Compose's own tag."""

    Loader.add_constructor("!override", lambda loader, node: loader.construct_sequence(node, deep=True))
    overrides = [yaml.load(text, Loader) for _, language, text in BLOCKS if language == "yaml"]
    assert overrides
    for override in overrides:
        assert override["services"].keys() <= SERVICES.keys()


def test_images_and_volumes_of_the_page_are_those_of_the_file() -> None:
    assert dockerfile.image("decoder-gpu").base in PAGE
    project = file.load()
    for volume in re.findall(rf"\b{project['name']}_([a-z-]+)", PAGE):
        assert volume in project["volumes"]


def test_the_password_is_made_as_the_store_wants_it(tmp_path: Path) -> None:
    (commands,) = (text for text in SHELL if "urandom" in text)
    subprocess.run(["sh", "-euc", commands], cwd=tmp_path, check=True)
    made = tmp_path / "secrets" / "redis_password"
    assert re.fullmatch(r"[0-9a-f]{64}", made.read_text())
    assert made.stat().st_mode & 0o777 == 0o644
    assert made.parent.stat().st_mode & 0o777 == 0o700
