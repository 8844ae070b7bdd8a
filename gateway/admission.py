"""The bounded queue: how many trees may wait for a worker."""

from __future__ import annotations

import grpc

from thoughtbeam.runtime.status import StatusError
from tree_store.errors import TreeNotFoundError
from tree_store.model import NewTree
from tree_store.store import TreeStore

RETRY_AFTER = 2.0  # seconds


class Admission:
    """Lets a new tree in while fewer than `max_queued` wait.

    The queue is shared by all gateways and each counts only its own arrivals, so that several together may
    let in a few more.
    """

    def __init__(self, store: TreeStore, max_queued: int) -> None:
        self._store = store
        self._max_queued = max_queued
        self._let_in = 0  # requests that got a place, ever
        self._arrived = 0  # of them, those that have left for the queue, or given up

    async def admit(self, new: NewTree) -> bool:
        """Creates a tree and puts it into the queue; False: the request came before and its tree exists.

        Raises RESOURCE_EXHAUSTED / QUEUE_FULL, and RequestReusedError.
        """
        if await self._full() and not await self._exists(new.tree_id):
            raise queue_full(self._max_queued)
        self._let_in += 1
        try:
            created = await self._store.create(new)
            if created:
                # should this not happen any more, the reaper finds the tree and does it
                await self._store.enqueue(new.tree_id)
            return created
        finally:
            self._arrived += 1

    async def _full(self) -> bool:
        # What arrives while the length is on its way is counted on top, though it may be part of it: close to
        # the bound one is refused too early rather than let in too many.
        arrived = self._arrived
        length = await self._store.queue_length()
        return length + self._let_in - arrived >= self._max_queued

    async def _exists(self, tree_id: str) -> bool:
        try:
            await self._store.tree(tree_id)
        except TreeNotFoundError:
            return False
        return True


def queue_full(max_queued: int) -> StatusError:
    return StatusError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "QUEUE_FULL",
        f"{max_queued} trees are waiting for a worker, which is the limit",
        metadata={"max_queued": str(max_queued)},
        retry_after=RETRY_AFTER,
    )
