"""What a program says of its configuration, at a terminal and to a service manager."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from decoder_worker.config import DecoderWorkerConfig
from decoder_worker.engine.base import Engine
from decoder_worker.engine.scripted import ScriptedEngine
from decoder_worker.engine.vllm_config import VllmConfig
from decoder_worker.main import StartError, serve
from tests.integration.operations.conftest import PASSWORD, Store
from tests.integration.operations.programs import running
from tests.integration.operations.scripted_decoder import Answering
from tests.unit.prm_worker.weights import step_weights
from thoughtbeam.runtime.config import PROGRAMS
from thoughtbeam.runtime.rpc import start_server


async def run(program: str, *arguments: str, **environment: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a program that ends by itself."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("THOUGHTBEAM_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", program, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**kept, **environment},
    )
    output, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize("program", PROGRAMS)
async def test_help_goes_to_stdout(program: str) -> None:
    status, output, errors = await run(program, "--help")

    assert (status, errors) == (0, "")
    assert "--print-config" in output
    assert f"THOUGHTBEAM_{program.upper()}_LISTEN" in output


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        (
            ["--listen", "nowhere"],
            {},
            "listen: must be HOST:PORT, port 0 for any free one; is 'nowhere' (flag",
        ),
        (
            [],
            {"LISTEN": "a:b"},
            "listen: must be HOST:PORT, port 0 for any free one; is 'a:b' (environment TH",
        ),
        (
            [],
            {"LISTNE": "a:1"},
            "there is no variable THOUGHTBEAM_{}_LISTNE; the nearest is THOUGHTBEAM_{}_LISTEN",
        ),
        (["--config", "missing.toml"], {}, "config: missing.toml cannot be read: No such file or directory"),
        (["--log-level", "loud"], {}, "log_level: must be one of debug, info, warning, error; is 'loud'"),
        (["--lisetn", "a:1"], {}, "there is no flag --lisetn; the nearest is --listen"),
    ],
)
async def test_a_bad_configuration_is_one_line(
    program: str, arguments: list[str], environment: dict[str, str], said: str
) -> None:
    variables = {f"THOUGHTBEAM_{program.upper()}_{name}": value for name, value in environment.items()}
    # what must be given, so that nothing else is wrong
    variables.update(THOUGHTBEAM_DECODER_WORKER_MODEL="m", THOUGHTBEAM_PRM_WORKER_SCORER="s")

    status, output, errors = await run(program, *arguments, **variables)

    assert (status, output) == (2, "")
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"{program}: {said.replace('{}', program.upper())}")


@pytest.mark.parametrize("program", ["gateway", "decoder_worker"])
@pytest.mark.parametrize(
    ("file", "said"), [("missing", "cannot be read: No such file or directory"), ("empty", "is empty")]
)
async def test_a_password_that_is_not_there_is_one_line(
    program: str, file: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").touch()

    status, output, errors = await run(
        program,
        THOUGHTBEAM_REDIS_PASSWORD_FILE=str(tmp_path / file),
        THOUGHTBEAM_DECODER_WORKER_MODEL="m",
    )

    assert (status, output) == (2, "")
    assert errors == f"{program}: redis_password_file: {tmp_path / file} {said}\n"


@pytest.mark.parametrize("program", PROGRAMS)
async def test_an_address_that_is_taken_is_one_line(program: str, tmp_path: Path) -> None:
    scorer = tmp_path / "scorer.pt"
    torch.save(step_weights(4), scorer)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        status, output, errors = await run(
            program,
            *("--listen", address),
            THOUGHTBEAM_DECODER_WORKER_MODEL="m",
            THOUGHTBEAM_PRM_WORKER_SCORER=str(scorer),
        )

    assert (status, output) == (1, "")
    # gRPC's own lines begin with a letter and a number
    (line,) = (line for line in errors.splitlines() if not re.match(r"[EWI]\d+ |\d{4}.* info ", line))
    assert f"cannot_start error='cannot listen on {address}: Address already in use'" in line


async def test_a_model_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    status, output, errors = await run("decoder_worker", "--model", f"{tmp_path}/nowhere")

    assert (status, output) == (1, "")
    (line,) = errors.splitlines()
    assert line.endswith(f"cannot_start error='model {tmp_path}/nowhere: there is no such directory'")


async def scored_by(address: str) -> None:
    """A decoder worker with the prm worker at `address`, until it ends."""

    async def start(config: VllmConfig) -> Engine:
        return ScriptedEngine(Answering("1"))

    await serve(DecoderWorkerConfig(model="m", listen="127.0.0.1:0", scorer=address), start)


async def test_a_scorer_of_another_model_does_not_let_a_worker_start(tmp_path: Path) -> None:
    torch.save(step_weights(4), tmp_path / "scorer.pt")
    flags = ("--scorer", tmp_path / "scorer.pt", "--model-fingerprint", "another")
    async with running(tmp_path, "prm_worker", *flags) as scorer:
        await scorer.becomes("SERVING")
        with pytest.raises(StartError, match=r"was trained for another engine: model_fingerprint another "):
            await asyncio.wait_for(scored_by(scorer.target), 60)


async def test_another_service_in_the_place_of_the_scorer_does_not_let_a_worker_start() -> None:
    server = await start_server("127.0.0.1:0", [], [])
    try:
        with pytest.raises(StartError, match=f"what listens at 127.0.0.1:{server.port} is no prm worker"):
            await asyncio.wait_for(scored_by(f"127.0.0.1:{server.port}"), 60)
    finally:
        await server.stop(0)


@pytest.mark.parametrize("program", ["gateway", "decoder_worker"])
async def test_print_config_shows_no_password(program: str, store: Store) -> None:
    url = store.url.replace("redis://", f"redis://:{PASSWORD}@")

    status, output, errors = await run(
        program, "--print-config", THOUGHTBEAM_REDIS_URL=url, THOUGHTBEAM_DECODER_WORKER_MODEL="m"
    )

    assert (status, errors) == (0, "")
    assert PASSWORD not in output
    assert "redis://:***@127.0.0.1:" in output


@pytest.mark.parametrize("program", ["gateway", "decoder_worker"])
async def test_print_config_prints_a_file_whatever_the_terminal(program: str) -> None:
    status, output, errors = await run(
        program,
        "--print-config",
        PYTHONIOENCODING="ascii",
        THOUGHTBEAM_REDIS_PASSWORD_FILE="/Ω",
        THOUGHTBEAM_DECODER_WORKER_MODEL="m",
    )

    assert (status, errors) == (0, "")
    assert tomllib.loads(output)["common"]["redis_password_file"] == "/Ω"


def test_print_config_onto_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gateway", "--print-config"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )

    assert ended.returncode == 1
    assert ended.stderr.decode() == "gateway: the settings cannot be printed: No space left on device\n"
