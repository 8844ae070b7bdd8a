from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.thoughtbeam.launches import DEAF, SLEEPER, WITH_CHILD, alive, gone, service
from thoughtbeam.supervision.signals import StopSignals
from thoughtbeam.supervision.supervisor import Service, ServiceFailedError, Supervisor


@pytest.fixture
def mark() -> str:
    return f"mark-{uuid.uuid4()}"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with StopSignals() as signals:
        running = Supervisor(signals, tmp_path, os.environ)
        yield running
        running.stop()


def wait_for(mark: str, count: int) -> None:
    deadline = time.monotonic() + 5.0
    while len(alive(mark)) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_until_deaf(mark: str, count: int) -> None:
    """Until so many processes ignore SIGTERM; with a bit more of a deadline: they have to begin first."""
    deadline = time.monotonic() + 30.0
    while sum(ignores_sigterm(pid) for pid in alive(mark)) != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ignores_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_services_stop_in_reverse_order(supervisor: Supervisor, mark: str) -> None:
    for name in ("store", "gateway", "decoder_worker"):
        supervisor.start(service(name, SLEEPER, mark))
    wait_for(mark, 3)
    order: list[str] = []

    supervisor.stop(order.append)

    assert order == ["decoder_worker", "gateway", "store"]
    assert alive(mark) == []


def test_a_service_that_ignores_sigterm_is_killed(supervisor: Supervisor, mark: str) -> None:
    supervisor.start(service("deaf", DEAF, mark, grace=0.3))
    wait_until_deaf(mark, 1)

    started = time.monotonic()
    supervisor.stop()

    assert 0.3 <= time.monotonic() - started < 60
    assert alive(mark) == []


def test_a_service_that_was_never_ready_is_not_waited_for_long(supervisor: Supervisor, mark: str) -> None:
    for name in ("ready", "starting"):
        supervisor.start(service(name, DEAF, mark, grace=3.5))
    supervisor.wait_healthy("ready", 5.0)
    wait_until_deaf(mark, 2)
    stopped: list[float] = []

    supervisor.stop(lambda name: stopped.append(time.monotonic()))

    assert 1.9 <= stopped[1] - stopped[0] < 3.4
    assert time.monotonic() - stopped[1] >= 3.4


def test_what_a_service_has_started_goes_with_it(supervisor: Supervisor, mark: str) -> None:
    supervisor.start(service("parent", WITH_CHILD, mark))
    wait_for(mark, 2)

    supervisor.stop()

    assert alive(mark) == []


def test_children_of_a_service_that_has_died_go_too(supervisor: Supervisor, mark: str) -> None:
    supervisor.start(service("parent", WITH_CHILD, mark))
    wait_for(mark, 2)
    os.kill(supervisor.processes["parent"], signal.SIGKILL)

    supervisor.stop()

    assert alive(mark) == []


def test_a_service_that_dies_shows_its_log(supervisor: Supervisor, mark: str) -> None:
    lines = "print(*range(100), sep='\\n'); raise SystemExit('no such model')"
    supervisor.start(service("sleeper", SLEEPER, mark))
    never = service("broken", lines, mark)
    supervisor.start(Service(never.name, never.command, lambda: False))

    with pytest.raises(
        ServiceFailedError, match=r"broken ended with status 1; its log is .*broken\.log"
    ) as caught:
        supervisor.wait_healthy("broken", 5.0)

    assert caught.value.log.splitlines()[-2:] == ["99", "no such model"]
    assert len(caught.value.log.splitlines()) == 20


def test_another_service_that_dies_ends_the_wait(supervisor: Supervisor, mark: str) -> None:
    slow = service("slow", SLEEPER, mark)
    supervisor.start(Service(slow.name, slow.command, lambda: False))
    supervisor.start(service("victim", SLEEPER, mark))
    os.kill(supervisor.processes["victim"], signal.SIGKILL)

    with pytest.raises(ServiceFailedError, match="victim was killed by SIGKILL"):
        supervisor.wait_healthy("slow", 30.0)


def test_a_service_that_never_gets_healthy(supervisor: Supervisor, mark: str) -> None:
    slow = service("slow", SLEEPER, mark)
    supervisor.start(Service(slow.name, slow.command, lambda: False))

    with pytest.raises(ServiceFailedError, match=r"slow was not ready after 0\.2 s"):
        supervisor.wait_healthy("slow", 0.2)


def test_a_command_that_does_not_exist(supervisor: Supervisor) -> None:
    supervisor.start(Service("missing", ["/no/such/program"], lambda: False))

    with pytest.raises(ServiceFailedError) as caught:
        supervisor.wait_healthy("missing", 5.0)

    assert "/no/such/program: No such file or directory" in caught.value.log


def test_the_log_of_the_run_before_is_kept(tmp_path: Path, mark: str) -> None:
    for text in ("first", "second"):
        with StopSignals() as signals:
            supervisor = Supervisor(signals, tmp_path, os.environ)
            supervisor.start(service("talker", f"print({text!r}, flush=True); {SLEEPER}", mark))
            wait_for(mark, 1)
            while not (tmp_path / "talker.log").read_text():
                time.sleep(0.02)
            supervisor.stop()

    assert (tmp_path / "talker.log").read_text() == "second\n"
    assert (tmp_path / "talker.log.1").read_text() == "first\n"


def test_a_terminal_does_not_reach_the_services(supervisor: Supervisor, mark: str) -> None:
    supervisor.start(service("sleeper", SLEEPER, mark))

    pid = supervisor.processes["sleeper"]

    assert os.getsid(pid) == os.getpgid(pid) == pid


# ---- the launcher itself is stopped


def launch(directory: Path, mark: str, *sources: str) -> subprocess.Popen[str]:
    program = Path(__file__).with_name("launches.py")
    arguments = [str(directory), mark.removeprefix("of:"), json.dumps(sources)]
    return subprocess.Popen([sys.executable, str(program), *arguments], stdout=subprocess.PIPE, text=True)


def read_until(launcher: subprocess.Popen[str], line: str) -> None:
    assert launcher.stdout is not None
    for read in launcher.stdout:
        if read.strip() == line:
            return
    raise AssertionError(f"it ended before it said {line!r}")


def test_nothing_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    mark = f"of:{uuid.uuid4()}"
    with launch(tmp_path, mark, WITH_CHILD, DEAF) as launcher:
        read_until(launcher, "up")
        wait_for(mark, 3)
        launcher.kill()

    assert gone(mark)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_at_any_moment_leave_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    moments = random.Random(int(number))
    for _ in range(3):
        mark = f"of:{uuid.uuid4()}"
        with launch(tmp_path, mark, SLEEPER, WITH_CHILD, DEAF) as launcher:
            read_until(launcher, "ready for signals")
            # somewhere in the start or after it, and again in the middle of the stop
            time.sleep(moments.uniform(0.0, 0.4))
            launcher.send_signal(number)
            time.sleep(moments.uniform(0.0, 0.3))
            launcher.send_signal(number)
            launcher.wait()

        # the second one may come when all is done
        assert launcher.returncode in (0, -number)
        # killed ones need no time to go: the launcher has waited for them
        assert alive(mark) == []
