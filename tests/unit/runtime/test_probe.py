"""The health command: its exit status, and one line when it is not 0."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from tests.unit.runtime.test_rpc import SERVICE, register
from thoughtbeam.runtime.probe import health, main
from thoughtbeam.runtime.rpc import start_server
from thoughtbeam.supervision.probes import free_ports, grpc_serves


async def run(*arguments: str) -> tuple[int, str]:
    """The exit status and what was written to stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "thoughtbeam.runtime.probe", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, errors = await process.communicate()
    assert output == b""
    assert process.returncode is not None
    return process.returncode, errors.decode()


async def test_serving_is_0_and_everything_else_1_with_a_line() -> None:
    server = await start_server("127.0.0.1:0", [register], [SERVICE])
    target = f"127.0.0.1:{server.port}"
    try:
        assert await run(target) == (1, f"{target} server: NOT_SERVING\n")
        assert await run(target, SERVICE) == (1, f"{target} {SERVICE}: NOT_SERVING\n")
        assert not await asyncio.to_thread(grpc_serves, server.port)

        await server.set_serving(True)
        assert await run(target) == (0, "")
        assert await run(target, SERVICE, "--timeout", "30") == (0, "")
        assert await asyncio.to_thread(grpc_serves, server.port)

        status, said = await run(target, "no.such.Service")
        assert status == 1
        assert said.startswith(f"{target} no.such.Service: NOT_FOUND")
    finally:
        await server.stop(0)


@pytest.mark.parametrize("target", ["127.0.0.1", "", "no host:1"])
def test_what_is_no_server_is_a_line(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([target, "--timeout", "2"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{target} server: ")


def test_where_nothing_listens_is_unavailable() -> None:
    (port,) = free_ports(1)
    assert health(f"127.0.0.1:{port}").startswith("UNAVAILABLE: ")
    assert not grpc_serves(port)


def test_one_that_does_not_answer_is_given_up_after_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = health(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.3)
    assert found.startswith(("DEADLINE_EXCEEDED", "UNAVAILABLE"))


def test_a_name_too_long_for_a_service_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["127.0.0.1:1", "x" * 128]) == 1
    assert "at most 127 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [[], ["a:1", "b", "c"], ["a:1", "--timeout", "x"]])
def test_wrong_arguments_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(wrong)
    assert caught.value.code == 2
