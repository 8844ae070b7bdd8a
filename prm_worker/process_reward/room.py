"""Room in the KV cache, handed out in the order of arrival."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Blocks of the KV cache for requests under way.

    vLLM would preempt a request whose next chunk finds no block, and hand back the rows of its first chunks
    twice. A request that has room for all its blocks before it begins is never preempted.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks = blocks
        self._free = blocks
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def taken(self, blocks: int) -> AsyncIterator[None]:
        """Inside, these blocks are the caller's. Raises ValueError when there are never as many."""
        if blocks > self._blocks:
            raise ValueError(f"{blocks} blocks are wanted; there are {self._blocks}")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((blocks, turn))
        self._hand_out()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += blocks
            else:
                turn.cancel()
            self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting:
            blocks, turn = self._waiting[0]
            if not turn.done():
                if blocks > self._free:
                    return
                self._free -= blocks
                turn.set_result(None)
            self._waiting.popleft()
