"""What a program says of its configuration, at a terminal and to a service manager."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from pathlib import Path

import pytest
import torch

from tests.integration.operations.conftest import PASSWORD, Store
from tests.unit.prm_worker.weights import step_weights
from thoughtbeam.runtime.config import PROGRAMS


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
    assert f"cannot listen on {address}" in line


@pytest.mark.parametrize("program", ["gateway", "decoder_worker"])
async def test_print_config_shows_no_password(program: str, store: Store) -> None:
    url = store.url.replace("redis://", f"redis://:{PASSWORD}@")

    status, output, errors = await run(
        program, "--print-config", THOUGHTBEAM_REDIS_URL=url, THOUGHTBEAM_DECODER_WORKER_MODEL="m"
    )

    assert (status, errors) == (0, "")
    assert PASSWORD not in output
    assert "redis://:***@127.0.0.1:" in output
