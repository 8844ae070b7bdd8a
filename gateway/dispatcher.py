"""Hands queued trees to connected workers: a tree leaves the queue only when some worker has credit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from gateway.fleet import Fleet, Wanted, WorkerStream
from gateway.mapping import search_of
from gateway.parameters import capacity_of
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.v1 import work_pb2
from tree_store.errors import StaleEpochError, StoreError, TransitionRefusedError, TreeNotFoundError
from tree_store.model import TreeState
from tree_store.store import TreeStore

log = EventLogger("gateway.dispatcher")

# Seconds. How long one look behind the end of the queue takes, during which nothing else is handed out.
_BLOCK = 0.5
_STORE_PAUSE = 1.0
_PAGE = 100
# Entries of which one pass remembers what they want; those beyond are looked up again.
_REMEMBERED = 10_000


class Dispatcher:
    """One per gateway. lease: seconds from an assignment in which the worker has to renew it first.

    It goes through the queue from the front, as long as workers have credit, and by whatever none of them can
    run: that keeps its place. A change of the fleet starts the next pass.
    """

    def __init__(self, store: TreeStore, fleet: Fleet, lease: float) -> None:
        self._store = store
        self._fleet = fleet
        self._lease = lease
        self._passed = ""  # the last entry that this pass went by
        # what trees gone by want, by entry: of this pass, and what is left of the one before
        self._wanted: dict[str, Wanted] = {}
        self._wanted_before: dict[str, Wanted] = {}
        self._unplaced: set[Wanted] = (
            set()
        )  # by this pass: no later tree that wants the same takes their turn
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
        await self._requeue_returned()
        changed = self._fleet.changed
        if not self._fleet.credit:
            await changed.wait()
            self._start_pass()
            return
        page = await self._store.queue(self._passed, block=0 if changed.is_set() else _BLOCK, count=_PAGE)
        for entry, tree_id in page:
            if not self._fleet.credit:
                return
            await self._look_at(entry, tree_id)
            self._passed = entry
        if changed.is_set() and len(page) < _PAGE:
            self._start_pass()
        elif len(self._wanted) >= _REMEMBERED:
            self._forget()

    def _start_pass(self) -> None:
        self._fleet.changed.clear()
        self._passed = ""
        self._forget()

    def _forget(self) -> None:
        self._wanted, self._wanted_before = {}, self._wanted
        self._unplaced = set()

    async def _look_at(self, entry: str, tree_id: str) -> None:
        """One entry of the queue: handed out, left for a worker that fits, or dropped as no longer due."""
        wanted = self._wanted_before.get(entry) or await self._look_up(tree_id)
        if wanted is None:
            await self._store.drop(entry)
        elif wanted not in self._unplaced and (stream := self._fleet.ready_for(wanted)):
            await self._assign(tree_id, stream)
            await self._store.drop(entry)
        else:
            self._unplaced.add(wanted)
            self._wanted[entry] = wanted

    async def _look_up(self, tree_id: str) -> Wanted | None:
        """What a tree asks of its worker; None: it does not wait for one any more."""
        try:
            record = await self._store.tree(tree_id)
        except TreeNotFoundError:
            return None
        if record.state is not TreeState.QUEUED:
            return None
        search = search_of(record.search)
        return Wanted(record.model, record.policy, capacity_of(search.parameters), search.scorer)

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
