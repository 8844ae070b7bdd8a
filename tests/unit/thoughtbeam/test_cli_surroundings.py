"""What a terminal, a shell or a disk may do to a command: one line and an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import pytest

from tests.unit.thoughtbeam.scripted_service import ScriptedService, serving
from thoughtbeam.cli import exits
from thoughtbeam.v1 import reasoning_pb2 as pb

QUESTION = "Ω \N{GRINNING FACE} é?"


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a service with one tree."""
    scripted = ScriptedService()
    tree = pb.Tree(name=f"trees/{'7' * 36}", state=pb.TREE_STATE_QUEUED, policy="gambit", question=QUESTION)
    scripted.replies["ListTrees"] = [pb.ListTreesResponse(trees=[tree])] * 3
    scripted.replies["GetTree"] = [pb.GetTreeResponse(tree=tree)]
    scripted.replies["ListNodes"] = [pb.ListNodesResponse()]
    with serving(scripted) as endpoint:
        yield endpoint


def run(
    endpoint: str,
    *arguments: str | bytes,
    stdin: bytes = b"",
    stdout: int | IO[bytes] = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
    shell: str = "",
) -> subprocess.CompletedProcess[bytes]:
    """A command, whatever becomes of it. shell: what a shell does to it, such as `>&-`."""
    command: list[str | bytes] = [sys.executable, "-m", "thoughtbeam.cli.main", *arguments]
    if shell:
        command = ["sh", "-c", f'exec "$@" {shell}', "sh", *command]
    surroundings = {**os.environ, "THOUGHTBEAM_ENDPOINT": endpoint, **(environment or {})}
    return subprocess.run(
        command, input=stdin, stdout=stdout, stderr=subprocess.PIPE, env=surroundings, timeout=60, check=False
    )


@pytest.mark.parametrize(
    "surroundings",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "latin-1", "C"],
)
@pytest.mark.parametrize("command", [["tree", "list"], ["tree", "show"], ["tree", "list", "--json"]])
def test_a_terminal_without_the_characters(
    service: str, surroundings: dict[str, str], command: list[str]
) -> None:
    ended = run(service, *command, environment=surroundings)

    assert (ended.returncode, ended.stderr) == (exits.OK, b"")
    if "--json" in command:
        # whole, whatever the terminal
        assert json.loads(ended.stdout)[0]["question"] == QUESTION
    else:
        assert b"\\u03a9" in ended.stdout


@pytest.mark.parametrize("command", [["tree", "list"], ["tree", "show"], ["tree", "list", "--json"]])
def test_a_disk_that_is_full(service: str, command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ended = run(service, *command, stdout=full)

    assert ended.returncode == exits.FAILED
    assert_one_line(ended.stderr, "No space left")


@pytest.mark.parametrize("shell", [">&-", "2>&-", ">&- 2>&-", "<&-"])
@pytest.mark.parametrize("command", [["tree", "list"], ["tree", "list", "--json"]])
def test_streams_that_are_closed(service: str, shell: str, command: list[str]) -> None:
    ended = run(service, *command, shell=shell)

    assert (ended.returncode, ended.stderr) == (exits.OK, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve", b"6 * \xff?"],
        ["submit", "q", "--model", b"\xff"],
        ["submit", "q", "--request-id", b"\xff"],
        ["submit", "q", "-p", b"\xff=1"],
        ["tree", "cancel", b"\xff" * 36],
        ["tree", "list", "--endpoint", b"\xff:1"],
    ],
)
def test_arguments_that_are_no_text(service: str, arguments: list[str | bytes]) -> None:
    ended = run(service, *arguments)

    assert ended.returncode == exits.USAGE
    assert_one_line(ended.stderr)


@pytest.mark.parametrize(
    "surroundings", [{"PYTHONIOENCODING": "utf-8"}, {"LC_ALL": "C"}], ids=["strict", "C"]
)
def test_a_question_from_stdin_that_is_no_text(service: str, surroundings: dict[str, str]) -> None:
    ended = run(service, "solve", "-", stdin=b"6 * \xff?", environment=surroundings)

    assert ended.returncode == exits.USAGE
    assert_one_line(ended.stderr)


@pytest.mark.parametrize(
    "arguments",
    [
        ["tree", "list", "-n", "0"],
        ["tree", "list", "-n", "-5"],
        ["tree", "list", "-n", "9" * 30],
        ["solve", "q", "--timeout", "nan"],
        ["solve", "q", "--timeout", "-1"],
        ["stop", "--timeout", "nan"],
        ["serve", "--local", "--port", "-1"],
        ["serve", "--local", "--port", "65536"],
        ["serve", "--local", "--startup-timeout", "nan"],
    ],
)
def test_numbers_that_are_out_of_range(service: str, arguments: list[str]) -> None:
    ended = run(service, *arguments)

    assert ended.returncode == exits.USAGE
    assert b"Traceback" not in ended.stderr
    assert arguments[-2].encode() in ended.stderr


def test_a_home_that_can_be_none(service: str) -> None:
    ended = run(service, "stop", environment={"THOUGHTBEAM_HOME": "/dev/null"})

    assert ended.returncode == exits.FAILED
    assert_one_line(ended.stderr, "/dev/null")


def assert_one_line(written: bytes, part: str = "") -> None:
    text = written.decode()
    assert text.startswith("thoughtbeam: ")
    assert text.count("\n") == 1, text
    assert part in text
