"""A way to a server that can be shut: what is connected is cut off, and nobody gets in until it opens. Or it
freezes: connections stay, and new ones are taken, but nothing passes any more, as when a machine is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Door:
    """Forwards to a server, `scheme://host:port`. refused: connections that came while it was shut."""

    def __init__(self, target: str) -> None:
        where = urlsplit(target)
        self._target = (where.hostname or "127.0.0.1", where.port or 6379)
        self._open = True
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._passing: dict[asyncio.Task[None], tuple[asyncio.StreamWriter, ...]] = {}
        self.refused = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def shut(self) -> None:
        self._open = False
        for writers in self._passing.values():
            for writer in writers:
                writer.close()

    def open(self) -> None:
        self._open = True

    def freeze(self) -> None:
        self._thawed.clear()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Door]:
        server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self._thawed.set()
            self.shut()
            await asyncio.gather(*self._passing)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open:
            self.refused += 1
            writer.close()
            return
        task = asyncio.current_task()
        assert task is not None
        self._passing[task] = (writer,)
        try:
            from_server, to_server = await asyncio.open_connection(*self._target)
            self._passing[task] = (writer, to_server)
            if not self._open:  # shut meanwhile
                writer.close()
                to_server.close()
            await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer))
        finally:
            del self._passing[task]

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self._thawed.wait()
                sink.write(data)
        except ConnectionError:
            pass  # cut off
        sink.close()
