"""docker/Dockerfile: it can be parsed, what it copies exists, and the images are as small and as unprivileged
as they are meant to be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compose import dockerfile, file
from tests.compose.file import ROOT

STAGES = dockerfile.stages()
TARGETS = sorted({s["build"]["target"] for s in file.load()["services"].values() if "build" in s})


def sent(name: str) -> bool:
    """Whether .dockerignore lets the builder have a path."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    wanted = False
    for line in lines:
        pattern = line.removeprefix("!")
        if pattern == "*" or name == pattern or name.startswith(f"{pattern}/"):
            wanted = line.startswith("!")
    return wanted


def test_compose_builds_every_image_of_the_dockerfile() -> None:
    assert TARGETS == ["decoder-cpu", "decoder-gpu", "gateway", "prm-worker"]
    assert STAGES.keys() > set(TARGETS)


def test_every_instruction_is_complete() -> None:
    for instruction in dockerfile.instructions():
        assert instruction.rest, instruction
        if instruction.name == "ENTRYPOINT":
            assert all(isinstance(part, str) for part in json.loads(instruction.rest))
        if instruction.name == "RUN":
            shell = subprocess.run(
                ["sh", "-n", "-c", instruction.rest], capture_output=True, text=True, check=False
            )
            assert shell.returncode == 0, shell.stderr


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    copied = 0
    for stage in STAGES.values():
        for instruction in stage.instructions:
            if instruction.name != "COPY":
                continue
            *sources, _ = instruction.rest.split()
            if other := instruction.flags.get("from"):
                assert list(STAGES).index(other) < list(STAGES).index(stage.name)
                continue
            for source in sources:
                assert (ROOT / source).exists(), source
                assert sent(source), f".dockerignore keeps {source} back"
                copied += 1
    assert copied > 8


def test_the_builder_gets_every_package_and_nothing_else_that_is_large_or_secret() -> None:
    for package in ("thoughtbeam", "tree_store", "gateway", "prm_worker", "decoder_worker"):
        assert sent(f"{package}/__init__.py")
    for other in (
        ".git",
        ".env",
        "secrets/redis_password",
        "scorers/scorer.pt",
        "tests",
        ".thoughtbeam/store",
    ):
        assert not sent(other)


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_one_of_our_programs_as_an_unprivileged_user(target: str) -> None:
    image = dockerfile.image(target)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", image.user)
    *python, program = image.entrypoint
    assert python == ["python3", "-m"]
    assert (ROOT / program / "__main__.py").is_file()


@pytest.mark.parametrize("target", TARGETS)
def test_base_images_are_short_names_pinned_by_tag(target: str) -> None:
    base = dockerfile.image(target).base
    name, _, tag = base.partition(":")
    assert "." not in name
    assert re.search(r"\d+\.\d+", tag), base


def test_the_engine_of_the_gpu_image_is_the_first_tested_release() -> None:
    from decoder_worker.engine import vllm_config

    tag = dockerfile.image("decoder-gpu").base.partition(":v")[2]
    vllm_config.check_version(tag)  # a warning, hence an error, for what was not tested
    assert dockerfile.image("decoder-gpu").base == f"vllm/vllm-openai:v{tag}"


def test_build_tools_stay_in_the_stages_that_build() -> None:
    tools = re.compile(r"hatchling|build-essential|gcc|--no-build-isolation")
    for target in set(TARGETS) - {"decoder-gpu"}:
        # the last image of its line only gets a folder
        assert STAGES[STAGES[target].base].base == dockerfile.image("gateway").base
        runs = [i.rest for i in STAGES[target].instructions if i.name == "RUN"]
        assert not any(tools.search(run) or "pip" in run for run in runs)


def test_pip_installs_by_the_locks() -> None:
    installs = [
        command
        for stage in STAGES.values()
        for instruction in stage.instructions
        if instruction.name == "RUN"
        for command in instruction.rest.split("&&")
        if re.search(r"pip.* install\b", command)
    ]
    assert len(installs) >= 6
    for command in installs:
        assert "--require-hashes" in command or "--constraint" in command or "--no-deps wheels" in command


# ---- what the image of vLLM gets beside vLLM


def constrained(tmp_path: Path, image: str) -> dict[str, str]:
    """The constraints for an image with these packages, by name."""
    listed = tmp_path / "image.txt"
    listed.write_text(image)
    script = [sys.executable, "docker/constraints.py", str(listed), "requirements/server.txt"]
    run = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=True)
    return dict(line.split("==") for line in run.stdout.split())


def test_what_the_image_of_vllm_has_is_kept_and_what_it_lacks_is_pinned(tmp_path: Path) -> None:
    pins = constrained(
        tmp_path, "nvidia-nccl==2.28.9+local.1\nnumpy==2.2.6\nTyping_Extensions==4.15.0\ngrpcio==1.83.0\n"
    )
    assert pins["nvidia-nccl"] == "2.28.9+local.1"
    assert pins["numpy"] == "2.2.6"
    assert pins["typing-extensions"] == "4.15.0"
    assert f"redis=={pins['redis']}" in (ROOT / "requirements/server.txt").read_text()
    # they come in the version of the grpcio that is there, which pip knows
    assert pins["grpcio"] == "1.83.0"
    assert not {"grpcio-status", "grpcio-reflection", "grpcio-health-checking"} & pins.keys()


def test_an_image_without_grpc_gets_all_of_it_pinned(tmp_path: Path) -> None:
    pins = constrained(tmp_path, "numpy==2.2.6\n")
    assert {"grpcio", "grpcio-status", "grpcio-reflection", "grpcio-health-checking"} <= pins.keys()
