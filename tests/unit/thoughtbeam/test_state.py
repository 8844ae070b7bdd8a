from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thoughtbeam.supervision.state import AlreadyRunningError, Running, StateDirectory

RUNNING = Running("localhost:1", "redis://127.0.0.1:2", os.getpid(), {"gateway": 3}, "/logs")


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "home")


def test_the_directory_is_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("THOUGHTBEAM_HOME", raising=False)
    assert StateDirectory().path == tmp_path / ".thoughtbeam"

    monkeypatch.setenv("THOUGHTBEAM_HOME", "elsewhere")
    assert StateDirectory().path == tmp_path / "elsewhere"


def test_nothing_runs_where_nothing_was_ever_started(state: StateDirectory) -> None:
    assert state.holder() is None
    assert state.running() is None
    assert not state.path.exists()


def test_a_launcher_holds_its_directory_and_announces_itself(state: StateDirectory) -> None:
    with state.locked():
        assert state.holder() == os.getpid()
        assert state.running() is None

        state.announce(RUNNING)
        assert state.running() == RUNNING

    assert state.holder() is None
    assert state.running() is None
    assert not (state.path / "local.json").exists()


def test_a_second_launcher_is_refused(state: StateDirectory) -> None:
    with (
        state.locked(),
        pytest.raises(AlreadyRunningError, match=f"in {state.path} .process {os.getpid()}"),
        state.locked(),
    ):
        raise AssertionError("must not be entered")


def test_a_child_that_is_left_holds_the_directory_too(state: StateDirectory) -> None:
    with state.locked() as lock:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[lock]
        )
    with child:
        assert state.holder() == os.getpid()
        with pytest.raises(AlreadyRunningError), state.locked():
            raise AssertionError("must not be entered")
    assert state.wait_released(5.0)


def test_what_a_killed_launcher_has_announced_does_not_count(state: StateDirectory) -> None:
    with state.locked():
        pass
    state.announce(RUNNING)

    assert state.running() is None
    with state.locked():
        assert state.running() is None


def test_waiting_for_a_launcher_that_stays(state: StateDirectory) -> None:
    with state.locked():
        started = time.monotonic()
        assert not state.wait_released(0.3)
        assert time.monotonic() - started < 30
