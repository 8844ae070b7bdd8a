"""A network between a client and a gateway, which a test can break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass(slots=True)
class BreakableLink:
    """Carries connections to a port of this machine. endpoint: where clients reach it."""

    target: int
    endpoint: str = ""
    up: bool = True
    breaks: int = 0
    _connections: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        """Every connection is lost; a new one can be made."""
        self.breaks += 1
        for writer in self._connections:
            writer.transport.abort()

    def go_down(self) -> None:
        """Every connection is lost, and none can be made."""
        self.up = False
        self.cut()

    def come_up(self) -> None:
        self.up = True

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection of a client."""
        if not self.up:
            writer.transport.abort()
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
        both = {writer, inner_writer}
        self._connections |= both
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, inner_writer))
                group.create_task(_copy(inner_reader, writer))
        finally:
            self._connections -= both


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def breakable_link(target: int) -> AsyncIterator[BreakableLink]:
    link = BreakableLink(target)
    server = await asyncio.start_server(link.carry, "127.0.0.1", 0)
    link.endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield link
    finally:
        server.close()
        link.cut()
        await server.wait_closed()
