"""The services of compose.yaml as plain processes, for machines without a container engine.

A service runs with the command of its image and exactly the environment of its image and of compose.yaml.
What only a container gives it is translated:

* an address `SERVICE:PORT`, or of its own `0.0.0.0:PORT` and `127.0.0.1:PORT`: a free port of loopback;
* a path that is mounted (a secret, a file, a volume, a tmpfs): the path of what is mounted, and for a volume
  or a tmpfs a folder of its own;
* redis.conf and its scripts: copies, in which the port and the folder of the data are translated.

* where no Redis is installed, the embedded Valkey takes its place, and redis-py that of redis-cli's PING.

Not the same: its user, the read-only root, the limits, the isolation of its networks. On its PATH are the
environment's Python and the commands of a slim image, so that a compiler, for example, is not found.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.compose import dockerfile, file
from tests.compose.file import ROOT
from thoughtbeam.supervision.probes import free_ports
from tree_store.embedded import server_binary

# what Debian's slim images have, as far as our services call it
SLIM_COMMANDS = ("sh", "sed", "tr", "id", "lscpu")
STORE_COMMANDS = ("redis-server", "redis-cli")
_STORE_PORT = "6379"
_ADDRESS = re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9.-]*):(\d+)(?![\d.])")


class ServiceDiedError(AssertionError):
    """A service ended, or did not become healthy; with the end of its log."""


@dataclass(slots=True)
class Running:
    """One service. mounts: paths in the container and what they are here."""

    name: str
    service: Mapping[str, Any]
    process: subprocess.Popen[bytes]
    environment: dict[str, str]
    mounts: dict[str, Path]
    log: Path


class Processes:
    """The services of one profile. password: of the store. folder: for everything that they write."""

    def __init__(self, project: Mapping[str, Any], profile: str, folder: Path, password: str) -> None:
        self._project = project
        self._folder = folder
        self.services = file.services(project, profile)
        self.running: dict[str, Running] = {}
        self._secret = folder / "secrets" / "redis_password"
        self._secret.parent.mkdir()
        self._secret.write_text(f"{password}\n")
        self._path = f"{Path(sys.executable).parent}:{_commands(folder / 'bin')}"
        addresses = [(n, port) for n, s in self.services.items() for port in sorted(_own_ports(n, s))]
        self._ports = dict(zip(addresses, map(str, free_ports(len(addresses))), strict=True))

    def port(self, name: str, port: int) -> int:
        """Where a service listens here, in place of its port."""
        return int(self._ports[name, str(port)])

    def start_all(self) -> None:
        """Starts all services, each once those that it depends on are healthy, and waits for all."""
        for name in file.in_order(self.services):
            for needed in self.services[name].get("depends_on", {}):
                self.wait_healthy(needed)
            self.start(name)
        for name in self.running:
            self.wait_healthy(name)

    def start(self, name: str) -> None:
        """Starts one service, without waiting for it."""
        service = self.services[name]
        mounts = self._mounts(name, service)
        image = dockerfile.image(service["build"]["target"]) if "build" in service else dockerfile.Image("")
        values = {**image.environment, **service["environment"]}
        environment = {k: self._translated(name, v, mounts) for k, v in values.items()}
        environment["PATH"] = self._path
        command = [
            *image.entrypoint,
            *(self._translated(name, c, mounts) for c in service.get("command", ())),
        ]
        log = self._folder / f"{name}.log"
        with log.open("ab") as output:
            process = self._spawn(command, environment, output)
        self.running[name] = Running(name, service, process, environment, mounts, log)

    def wait_healthy(self, name: str) -> None:
        """Runs a service's health command until it succeeds.

        Raises ServiceDiedError when the service ends, or is not healthy after its start period and retries.
        """
        running = self.running[name]
        check = running.service["healthcheck"]
        patience = file.seconds(check["start_period"]) + check["retries"] * file.seconds(check["interval"])
        until = time.monotonic() + patience
        while not self.healthy(name):
            if running.process.poll() is not None:
                raise ServiceDiedError(
                    f"{name} ended with {running.process.returncode}:\n{_tail(running.log)}"
                )
            if time.monotonic() > until:
                raise ServiceDiedError(f"{name} is not healthy:\n{_tail(running.log)}")
            time.sleep(0.2)

    def healthy(self, name: str) -> bool:
        """Whether a service's health command succeeds."""
        running = self.running[name]
        if name == "redis" and shutil.which("redis-cli") is None:
            return _answers(self.port("redis", int(_STORE_PORT)), self._secret.read_text().strip())
        kind, *command = running.service["healthcheck"]["test"]
        assert kind == "CMD"
        command = [self._translated(name, part, running.mounts) for part in command]
        process = self._spawn(command, running.environment, subprocess.PIPE)
        said, _ = process.communicate()
        assert process.returncode in (0, 1), said.decode()
        return process.returncode == 0

    def stop(self, name: str) -> float:
        """Sends SIGTERM and waits as long as Compose would; seconds that it took.

        Raises ServiceDiedError when it does not end in time or not with status 0.
        """
        running = self.running.pop(name)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        grace = file.seconds(running.service["stop_grace_period"])
        try:
            status = running.process.wait(grace)
        except subprocess.TimeoutExpired:
            _end(running)
            raise ServiceDiedError(f"{name} runs {grace:g} s after SIGTERM:\n{_tail(running.log)}") from None
        if status != 0:
            raise ServiceDiedError(f"{name} ended with {status} after SIGTERM:\n{_tail(running.log)}")
        return time.monotonic() - began

    def kill_all(self) -> None:
        """Ends whatever still runs, with what it has started."""
        while self.running:
            _end(self.running.popitem()[1])

    def _spawn(
        self, command: list[str], environment: Mapping[str, str], output: IO[bytes] | int
    ) -> subprocess.Popen[bytes]:
        # the program is looked up as in the container, on the PATH of the service
        program = shutil.which(command[0], path=environment["PATH"])
        assert program is not None, f"{command[0]} is not on the PATH of a slim image"
        return subprocess.Popen(
            [program, *command[1:]],
            cwd=self._folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _mounts(self, name: str, service: Mapping[str, Any]) -> dict[str, Path]:
        mounts = {f"/run/secrets/{secret}": self._secret for secret in service.get("secrets", ())}
        for volume in service.get("volumes", ()):
            if isinstance(volume, str):
                volume_name, _, target = volume.partition(":")
                mounts[target] = self._made("volumes", volume_name)
            else:
                mounts[volume["target"]] = ROOT / volume["source"]
        for mount in service.get("tmpfs", ()):
            target = mount.partition(":")[0]
            mounts[target] = self._made("tmpfs", name, target.strip("/"))
        if name == "redis":
            mounts["/etc/thoughtbeam"] = self._store_files(mounts["/etc/thoughtbeam"], mounts["/data"])
        return mounts

    def _made(self, *parts: str) -> Path:
        folder = self._folder.joinpath(*parts)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _store_files(self, source: Path, data: Path) -> Path:
        copies = self._made("etc", "redis")
        for original in source.iterdir():
            text = original.read_text().replace(_STORE_PORT, self._ports["redis", _STORE_PORT])
            text = text.replace("dir /data", f"dir {data}").replace("bind * -::*", "bind 127.0.0.1")
            (copies / original.name).write_text(text)
        return copies

    def _translated(self, name: str, text: str, mounts: Mapping[str, Path]) -> str:
        for target, here in sorted(mounts.items(), reverse=True):
            if text == target or text.startswith(f"{target}/"):
                return f"{here}{text.removeprefix(target)}"

        def address(match: re.Match[str]) -> str:
            owner = match[1] if match[1] in self.services else name
            return f"127.0.0.1:{self._ports[owner, match[2]]}"

        return _ADDRESS.sub(address, text)


@contextlib.contextmanager
def running(project: Mapping[str, Any], profile: str, folder: Path, password: str) -> Iterator[Processes]:
    """The services of a profile, all healthy; nothing is left of them afterwards."""
    processes = Processes(project, profile, folder, password)
    try:
        processes.start_all()
        yield processes
    finally:
        processes.kill_all()


def _own_ports(name: str, service: Mapping[str, Any]) -> set[str]:
    """The ports that a service listens on in its container."""
    if name == "redis":
        return {_STORE_PORT}
    texts = [*service["environment"].values(), *service["healthcheck"]["test"]]
    found = (match for text in texts for match in _ADDRESS.finditer(text))
    return {match[2] for match in found if match[1] in ("0.0.0.0", "127.0.0.1")}


def _commands(folder: Path) -> Path:
    """A folder with links to what a slim image and the image of Redis have."""
    folder.mkdir()
    for name in (*SLIM_COMMANDS, *STORE_COMMANDS):
        found = shutil.which(name)
        if found is None and name == "redis-server":
            found = str(server_binary())
        if found is not None:
            (folder / name).symlink_to(found)
    return folder


def _answers(port: int, password: str) -> bool:
    once = Retry(NoBackoff(), 0)
    with redis.Redis(port=port, password=password, protocol=2, retry=once) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def _end(running: Running) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.process.pid, signal.SIGKILL)
    running.process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-40:])
