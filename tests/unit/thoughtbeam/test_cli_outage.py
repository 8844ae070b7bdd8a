"""A service that goes away under a command, and what the command says of it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest

from tests.unit.thoughtbeam.scripted_service import (
    LOST,
    ScriptedService,
    node_event,
    pushed_back,
    result,
    serving,
)
from thoughtbeam import RetryConfig
from thoughtbeam.cli import exits
from thoughtbeam.cli.main import main, parser
from thoughtbeam.cli.options import open_client

Capture = pytest.CaptureFixture[str]


def solve(endpoint: str, *arguments: str) -> Sequence[str]:
    return ["solve", "6 * 7?", "--endpoint", endpoint, *arguments]


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def test_solve_finishes_with_one_search_though_the_service_is_restarted() -> None:
    # given a search that is under way
    first, second = ScriptedService(), ScriptedService()
    under_way = threading.Event()
    first.streams = [[node_event("1-1", 1), under_way.set, lambda: time.sleep(0.3)]]
    second.streams = [[node_event("1-2", 2), result()]]
    with serving(first) as endpoint:
        command = [sys.executable, "-m", "thoughtbeam.cli.main", *solve(endpoint)]
        solving = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert under_way.wait(20.0)
    # when its service is away for longer than a service never heard of would be waited for
    time.sleep(4.0)
    assert solving.poll() is None
    with serving(second, port_of(endpoint)):
        out, err = solving.communicate()

    # then it is one search with one answer, and its user knows why it took so long
    assert solving.returncode == exits.OK
    assert out.count("Answer: 42") == 1
    assert err == "thoughtbeam: the connection is lost; reconnecting, for up to 120 s\n"
    (before,), (after,) = first.requests, second.requests
    assert after.request_id == before.request_id
    assert (before.after_event_id, after.after_event_id) == ("", "1-1")


def test_a_service_that_stays_away(service: ScriptedService, endpoint: str, capsys: Capture) -> None:
    service.streams = [[node_event("1-1", 1), LOST], *[[LOST]] * 20]

    assert main(solve(endpoint, "--reconnect", "1", "--request-id", "my-id")) == exits.UNREACHABLE

    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "thoughtbeam: the connection is lost; reconnecting, for up to 1 s",
        "thoughtbeam: the search may go on; later `thoughtbeam tree result my-id` tells how it ended",
    ]
    assert len(lines) == 3


def test_each_outage_is_told_of_once(service: ScriptedService, endpoint: str, capsys: Capture) -> None:
    busy = pushed_back("10")
    service.streams = [[node_event("1-1", 1), LOST], [LOST], [node_event("1-2", 1), busy], [busy], [result()]]

    assert main(solve(endpoint)) == exits.OK

    assert capsys.readouterr().err.splitlines() == [
        "thoughtbeam: the connection is lost; reconnecting, for up to 120 s",
        "thoughtbeam: the connection is lost; reconnecting, for up to 120 s",
    ]


def test_how_long_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def config(*arguments: str) -> RetryConfig:
        with open_client(parser().parse_args(["load", *arguments])) as client:
            return client._retries.config

    assert config() == RetryConfig(first_contact=2.0, outage=120.0)
    monkeypatch.setenv("THOUGHTBEAM_RECONNECT_SECONDS", "600")
    assert config() == RetryConfig(first_contact=600.0, outage=600.0)
    assert config("--reconnect", "7") == RetryConfig(first_contact=7.0, outage=7.0)


@pytest.mark.parametrize("value", ["-1", "soon", "nan", "inf"])
def test_what_is_no_time(value: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["load", f"--reconnect={value}"])
    monkeypatch.setenv("THOUGHTBEAM_RECONNECT_SECONDS", value)
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["load"])
    assert caught.value.code == exits.USAGE
    assert capsys.readouterr().err.count(f"'{value}' is no number of seconds") == 2


def test_a_service_that_is_just_starting_is_waited_for(capsys: Capture) -> None:
    with serving(ScriptedService()) as endpoint:
        pass
    service = ScriptedService()
    service.streams = [[result()]]
    codes: list[int] = []
    arguments = solve(endpoint, "--reconnect", "60")
    asking = threading.Thread(target=lambda: codes.append(main(arguments)))
    asking.start()
    time.sleep(3.0)
    with serving(service, port_of(endpoint)):
        asking.join()

    assert codes == [exits.OK]
    assert capsys.readouterr().err == "thoughtbeam: nothing answers; reconnecting, for up to 60 s\n"
