"""The programs of the service as processes, as a service manager starts them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from thoughtbeam.runtime.probe import health
from thoughtbeam.supervision.probes import free_ports

PATIENCE = 60.0  # seconds; for what takes one or two


@dataclass(frozen=True, slots=True)
class Program:
    """A running program. log: the file that its stderr goes to."""

    name: str
    port: int
    process: asyncio.subprocess.Process
    log: Path

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def command_line(self) -> bytes:
        return Path(f"/proc/{self.process.pid}/cmdline").read_bytes()

    async def health(self, service: str = "") -> str:
        assert self.process.returncode is None, self.log.read_text()
        return await asyncio.to_thread(health, self.target, service)

    async def becomes(self, wanted: str, service: str = "") -> None:
        """Waits for this health."""
        async with asyncio.timeout(PATIENCE):
            while await self.health(service) != wanted:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.05)

    async def says(self, event: str) -> None:
        """Waits for an event in its log."""
        async with asyncio.timeout(PATIENCE):
            while event not in self.log.read_text():
                assert self.process.returncode is None, self.log.read_text()
                await asyncio.sleep(0.05)

    async def stays(self, wanted: str, service: str = "") -> None:
        """Asks for a while: the health does not change."""
        for _ in range(10):
            assert await self.health(service) == wanted
            await asyncio.sleep(0.05)

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """The exit status after a signal."""
        self.process.send_signal(number)
        return await asyncio.wait_for(self.process.wait(), PATIENCE)


@asynccontextmanager
async def running(
    folder: Path,
    name: str,
    *flags: object,
    module: str = "",
    environment: Mapping[str, str] | None = None,
    port: int = 0,
) -> AsyncIterator[Program]:
    """`python -m NAME --listen … FLAGS` for the length of the block, killed in the end if it still runs.

    environment: variables beside what every process needs. module: where it is not NAME, the module and what
    comes before its flags.
    """
    port = port or free_ports(1)[0]
    log = folder / f"{name}-{port}.log"
    kept = {n: v for n, v in os.environ.items() if not n.startswith("THOUGHTBEAM_")}
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *(module.split() or [name]), "--listen", f"127.0.0.1:{port}"),
            *map(str, flags),
            stdout=errors,
            stderr=errors,
            env={**kept, **(environment or {})},
        )
    try:
        yield Program(name, port, process, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
