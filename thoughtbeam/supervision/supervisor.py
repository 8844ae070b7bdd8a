"""Starts services as child processes, waits until they are healthy, stops them in reverse order."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from thoughtbeam.supervision import child, warden
from thoughtbeam.supervision.signals import StopSignals

_POLL = 0.05
_PR_SET_CHILD_SUBREAPER = 36
_STARTING_GRACE = 2.0
_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class Service:
    """One program to run. healthy: asks it, within about a second, whether it serves. grace: seconds between
    SIGTERM and SIGKILL, less if it was never healthy. remark: follows the line that says that it starts.
    environment: variables that it gets beside those of all services."""

    name: str
    command: Sequence[str]
    healthy: Callable[[], bool]
    grace: float = 10.0
    remark: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


class ServiceFailedError(Exception):
    """A service died or did not become healthy. log: its last lines."""

    def __init__(self, name: str, what: str, log_file: Path) -> None:
        super().__init__(f"{name} {what}; its log is {log_file}")
        self.name = name
        self.log = _tail(log_file)


class Supervisor:
    """Owns child processes. Each is a session of its own, so that a terminal's Ctrl-C goes to this process
    only, and dies with this process, however that ends.

    To be used in the main thread, inside `signals`. logs: directory for one log file per service.
    environment: of the children. keep_open: file descriptors that they inherit.
    """

    def __init__(
        self, signals: StopSignals, logs: Path, environment: Mapping[str, str], keep_open: Sequence[int] = ()
    ) -> None:
        self._signals = signals
        self._logs = logs
        self._environment = environment
        self._keep_open = keep_open
        self._children: list[_Child] = []
        _adopt_orphans(True)
        # unbuffered, so that the warden knows a group before anything else happens
        self._warden = subprocess.Popen(
            _bare(warden.__file__), stdin=subprocess.PIPE, bufsize=0, start_new_session=True
        )

    @property
    def processes(self) -> dict[str, int]:
        """Process ids by service."""
        return {c.service.name: c.process.pid for c in self._children}

    def start(self, service: Service) -> None:
        """Starts a service, without waiting for it."""
        self._signals.check()
        log_file = self._logs / f"{service.name}.log"
        if log_file.exists():
            log_file.replace(log_file.with_suffix(".log.1"))
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*_bare(child.__file__), str(os.getpid()), *service.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment, **service.environment},
                start_new_session=True,
                pass_fds=self._keep_open,
            )
        self._children.append(_Child(service, process, log_file))
        self._tell_warden(f"+{process.pid}\n")

    def wait_healthy(self, name: str, timeout: float) -> None:
        """Waits until a started service is healthy.

        Raises ServiceFailedError when this or any other service dies meanwhile or `timeout` seconds pass, and
        StopRequestedError.
        """
        waited_for = next(c for c in self._children if c.service.name == name)
        deadline = time.monotonic() + timeout
        while not waited_for.service.healthy():
            self.check()
            if time.monotonic() > deadline:
                raise ServiceFailedError(name, f"was not ready after {timeout:g} s", waited_for.log_file)
            self._signals.wait(_POLL * 2)
        self.check()
        waited_for.ready = True

    def check(self) -> None:
        """Raises ServiceFailedError when a service has died."""
        for running in self._children:
            code = running.exit_code()
            if code is not None:
                how = (
                    f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
                )
                raise ServiceFailedError(running.service.name, how, running.log_file)

    def stop(self, report: Callable[[str], None] = lambda name: None) -> None:
        """Stops all services, the last one started first, and waits until nothing of them is left.

        report: called with the name of each before it is stopped. Signals only leave their note meanwhile.
        """
        while self._children:
            running = self._children[-1]
            report(running.service.name)
            running.stop()
            self._tell_warden(f"-{running.process.pid}\n")
            self._children.pop()
        if self._warden.stdin is not None:
            self._warden.stdin.close()
        self._warden.wait()
        _adopt_orphans(False)

    def _tell_warden(self, line: str) -> None:
        assert self._warden.stdin is not None
        # if somebody has killed it, the children still die with this process
        with contextlib.suppress(BrokenPipeError):
            self._warden.stdin.write(line.encode())


@dataclass(slots=True)
class _Child:
    service: Service
    process: subprocess.Popen[bytes]
    log_file: Path
    ready: bool = False

    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs. It stays a zombie: until it is reaped,
        nobody else can get its process id, and its group can be killed safely."""
        ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def stop(self) -> None:
        if self.exit_code() is None:
            os.kill(self.process.pid, signal.SIGTERM)
            # before it is ready it has nothing to finish, and perhaps no ear for signals yet
            grace = self.service.grace if self.ready else min(self.service.grace, _STARTING_GRACE)
            deadline = time.monotonic() + grace
            while self.exit_code() is None and time.monotonic() < deadline:
                time.sleep(_POLL)
        # what it has started itself, and itself if it did not listen
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # with much memory, going takes a moment
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-self.process.pid, 0)


def _adopt_orphans(adopt: bool) -> None:
    """Makes this process, in place of init, the parent of what its children leave, so that it can wait for
    it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _bare(script: str | None) -> list[str]:
    """A Python without site packages, which starts in a few milliseconds."""
    assert script is not None
    return [sys.executable, "-I", "-S", script]


def _tail(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
