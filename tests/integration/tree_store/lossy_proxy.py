"""A connection to Redis that loses replies: the command is carried out, the client never hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class LossyProxy:
    """Forwards to a server. The next `keep` replies come through, the `lose` after them are dropped, each
    with its connection; all later ones come through."""

    def __init__(self, target: str) -> None:
        where = urlsplit(target)
        self._target = (where.hostname or "127.0.0.1", where.port or 6379)
        self._database = where.path
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.keep = 0
        self.lose = 0
        self.lost = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}{self._database}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[LossyProxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for to_server in self._open.values():
                to_server.close()
            await asyncio.gather(*self._open)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        from_server, to_server = await asyncio.open_connection(*self._target)
        self._open[task] = to_server
        requests = asyncio.create_task(_copy(reader, to_server))
        try:
            await self._answer(from_server, writer)
        finally:
            requests.cancel()
            await asyncio.gather(requests, return_exceptions=True)
            writer.close()
            to_server.close()
            del self._open[task]

    async def _answer(self, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_server.read(65536):
            if self.keep > 0:
                self.keep -= 1
            elif self.lose > 0:
                self.lose -= 1
                self.lost += 1
                return
            writer.write(data)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
    sink.close()
