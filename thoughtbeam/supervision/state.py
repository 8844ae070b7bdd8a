"""The directory that a launcher keeps its state in: data, logs, and the files that tell others about it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

# somebody who only looks (`holder`) has the lock for a moment, and so has what a killed launcher leaves
_PATIENCE = 1.0

HOME_VARIABLE = "THOUGHTBEAM_HOME"


class AlreadyRunningError(Exception):
    """Another launcher, or what is left of one, holds the state directory."""

    def __init__(self, directory: Path, pid: int) -> None:
        super().__init__(f"services run already in {directory} (process {pid})")
        self.pid = pid


@dataclass(frozen=True, slots=True)
class Running:
    """What a launcher tells about itself once everything is healthy. supervisor: its process id; processes:
    ids of its services; logs: directory of their log files."""

    endpoint: str
    redis_url: str
    supervisor: int
    processes: Mapping[str, int]
    logs: str


class StateDirectory:
    """`$THOUGHTBEAM_HOME`, else `.thoughtbeam` in the working directory."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = (path or Path(os.environ.get(HOME_VARIABLE) or ".thoughtbeam")).absolute()
        self.logs = self.path / "logs"
        self.store = self.path / "store"
        self._lock = self.path / "lock"
        self._running = self.path / "local.json"

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Makes the directory and holds it for one launcher; gives the lock's file descriptor.

        Children that inherit the descriptor hold the lock too: a new launcher is refused until the last of
        them is gone. Raises AlreadyRunningError.
        """
        for directory in (self.logs, self.store):
            directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take(lock)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
            self.forget()
            try:
                yield lock
            finally:
                self.forget()
        finally:
            os.close(lock)

    def holder(self) -> int | None:
        """Process id of the launcher that holds the directory; None when nobody does."""
        try:
            lock = os.open(self._lock, os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._holder()
        finally:
            os.close(lock)
        return None

    def wait_released(self, timeout: float) -> bool:
        """Waits until nobody holds the directory; False after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while self.holder() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def announce(self, running: Running) -> None:
        """Writes `local.json`, whole or not at all."""
        draft = self._running.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(running), indent=2) + "\n")
        draft.replace(self._running)

    def forget(self) -> None:
        """Removes `local.json`."""
        self._running.unlink(missing_ok=True)

    def running(self) -> Running | None:
        """What the launcher that holds the directory has announced; None before it has, and without one."""
        if self.holder() is None:
            return None
        try:
            found = json.loads(self._running.read_text())
        except FileNotFoundError:
            return None
        return Running(**{f.name: found[f.name] for f in fields(Running)})

    def _take(self, lock: int) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AlreadyRunningError(self.path, self._holder()) from None
            time.sleep(0.05)

    def _holder(self) -> int:
        return int(self._lock.read_text().strip() or 0)
