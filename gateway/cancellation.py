"""Cancelling a tree: in the store first, which is what counts, then at its worker, which is what is quick."""

from __future__ import annotations

import asyncio

from gateway.fleet import Fleet
from tree_store.model import TreeRecord
from tree_store.store import TreeStore

_POLL = 0.05  # seconds


class Canceller:
    def __init__(self, store: TreeStore, fleet: Fleet) -> None:
        self._store = store
        self._fleet = fleet

    async def cancel(self, tree_id: str) -> TreeRecord:
        """Asks for the end of a tree; one that has ended is left as it is. Raises TreeNotFoundError."""
        record = await self._store.request_cancel(tree_id)
        if not record.state.terminal:
            self._fleet.cancel(record.worker, tree_id)
        return record

    async def cancel_and_wait(self, tree_id: str, wait: float) -> TreeRecord:
        """The same, then waits up to `wait` seconds for the end; returns the tree as it then is."""
        record = await self.cancel(tree_id)
        deadline = asyncio.get_running_loop().time() + wait
        while not record.state.terminal and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL)
            record = await self._store.tree(tree_id)
        return record
