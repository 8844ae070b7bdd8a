"""Hands queued trees to connected workers: a tree leaves the queue only when some worker has credit."""

from __future__ import annotations

import asyncio
import os
import socket
import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.fleet import Fleet, Wanted, WorkerStream
from gateway.mapping import search_of
from gateway.parameters import capacity_of
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.v1 import work_pb2
from tree_store.dispatch_queue import UNACKED_AFTER
from tree_store.errors import StaleEpochError, StoreError, TransitionRefusedError, TreeNotFoundError
from tree_store.model import TreeState
from tree_store.store import TreeStore

log = EventLogger("gateway.dispatcher")

# Seconds. How long one look into an empty queue takes, during which nothing else is handed out.
_BLOCK = 0.5
_STORE_PAUSE = 1.0
# An entry that is not acknowledged for UNACKED_AFTER goes back to the queue; it is let go of before that.
_KEEP = 0.75 * UNACKED_AFTER


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A tree that was taken from the queue for a worker that turned out not to fit. until: loop time."""

    entry: str
    tree_id: str
    wanted: Wanted
    until: float


class Dispatcher:
    """One per gateway. lease: seconds from an assignment in which the worker has to renew it first."""

    def __init__(self, store: TreeStore, fleet: Fleet, lease: float) -> None:
        self._store = store
        self._fleet = fleet
        self._lease = lease
        self._consumer = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self._taken: deque[tuple[str, str]] = deque()  # (entry, tree id), not looked at yet
        self._waiting: dict[str, _Waiting] = {}
        self._returned: list[work_pb2.Assignment] = []

    def give_back(self, assignments: Iterable[work_pb2.Assignment]) -> None:
        """Assignments that did not reach their worker, for the queue."""
        self._returned.extend(assignments)
        self._fleet.changed.set()

    async def run(self) -> None:
        """Works until cancelled; a store that is away is waited for."""
        while True:
            try:
                await self._round()
            except StoreError as error:
                log.warning("store_failed", error=error)
                await asyncio.sleep(_STORE_PAUSE)

    async def _round(self) -> None:
        # whatever the store interrupts stays where it is, and is done again
        self._fleet.changed.clear()
        await self._requeue_returned()
        for waiting in list(self._waiting.values()):
            await self._hand_out(waiting)
        while self._taken:
            await self._look_at(*self._taken[0])
            self._taken.popleft()
        if credit := self._fleet.credit:
            self._taken.extend(await self._store.read_queue(self._consumer, _BLOCK, credit))
        else:
            await self._fleet.changed.wait()

    async def _look_at(self, entry: str, tree_id: str) -> None:
        """One entry of the queue: handed out, kept for a worker that fits, or dropped as no longer due."""
        try:
            record = await self._store.tree(tree_id)
        except TreeNotFoundError:
            record = None
        if record is None or record.state is not TreeState.QUEUED:
            await self._store.ack(entry)
            return
        wanted = Wanted(record.model, record.policy, capacity_of(search_of(record.search).parameters))
        until = asyncio.get_running_loop().time() + _KEEP
        waiting = self._waiting[tree_id] = _Waiting(entry, tree_id, wanted, until)
        await self._hand_out(waiting)

    async def _hand_out(self, waiting: _Waiting) -> None:
        if waiting.until < asyncio.get_running_loop().time():
            del self._waiting[waiting.tree_id]
        elif stream := self._fleet.ready_for(waiting.wanted):
            await self._assign(waiting.tree_id, stream)
            await self._store.ack(waiting.entry)
            del self._waiting[waiting.tree_id]

    async def _assign(self, tree_id: str, stream: WorkerStream) -> None:
        """Gives a tree to a worker, unless it is no longer queued."""
        stream.reserve(tree_id)
        try:
            assigned = await self._store.assign(tree_id, stream.worker, self._lease)
        except StoreError as error:
            stream.release(tree_id)
            if not isinstance(error, TransitionRefusedError | TreeNotFoundError):
                raise
            # cancelled, expired, or another gateway was first
            log.info("tree_skipped", tree_id=tree_id, why=error)
            return
        log.info("tree_assigned", tree_id=tree_id, worker=stream.worker, epoch=assigned.epoch)
        search = search_of(assigned.search)
        assignment = work_pb2.Assignment(tree_id=tree_id, epoch=assigned.epoch, search=search)
        if not stream.assign(assignment):
            self.give_back([assignment])

    async def _requeue_returned(self) -> None:
        while self._returned:
            assignment = self._returned[0]
            try:
                await self._store.requeue(assignment.tree_id, assignment.epoch)
                log.info("tree_requeued", tree_id=assignment.tree_id, epoch=assignment.epoch)
            except (StaleEpochError, TransitionRefusedError, TreeNotFoundError) as error:
                log.info("tree_moved_on", tree_id=assignment.tree_id, why=error)
            del self._returned[0]
