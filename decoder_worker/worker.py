"""The decoder worker: one engine, its slots, and the searches that share them.

The pump reads the engine's one stream of step batches and passes each search its part; a search reacts at
once and without waiting. What waits has a task of its own: engine calls in their order, scores, writes to the
tree store, leases.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.embedding.queue import EmbeddedThought, EmbeddingQueue, ThoughtText
from decoder_worker.engine.base import Engine, EngineError, SamplingSpec, StepBatch
from decoder_worker.routing import by_search, trace_id
from decoder_worker.scheduler_view import SchedulerView
from decoder_worker.scoring.base import ScoredRow, Scoring
from decoder_worker.scoring.client import ScoringClient
from decoder_worker.scoring.confidence import ConfidenceScoring
from decoder_worker.scoring.wire import BoundaryRow, scoring_id
from decoder_worker.search import Search
from decoder_worker.slots import Slots
from decoder_worker.tree_run import TreeRun
from decoder_worker.tree_view import Trace
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.tasks import TaskGroup, task_group
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.errors import StaleEpochError, StoreError
from tree_store.store import TreeStore

# A worker that stops does not wait longer than this for its gateway to send what was on its way, nor for the
# store to take it off the list of workers.
FAREWELL_SECONDS = 1.0

log = EventLogger("decoder_worker.worker")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What of a worker's settings (config.py, where their defaults are) concerns its searches.

    name: unique per process. profile: parameter defaults when a request names none. lease_seconds: how long a
    tree stays ours without a renewal; renewed at a third of it. drain_seconds: how long trees may go on once
    the worker is to stop. scorer_kind: "" without one.
    """

    name: str
    profile: str
    max_capacity: int
    lease_seconds: float
    drain_seconds: float
    scorer_kind: str = ""


@dataclass(frozen=True, slots=True)
class _Add:
    search: Search
    trace_id: str
    number: int
    tokens: list[int]
    sampling: SamplingSpec


@dataclass(frozen=True, slots=True)
class _Abort:
    trace_id: str


class Worker:
    """Runs assigned trees. on_capacity is called when `accepts_request` may have become true, or `draining`
    has. leaving: set when the link is to say goodbye and end."""

    def __init__(
        self,
        config: WorkerConfig,
        engine: Engine,
        store: TreeStore,
        scoring: ScoringClient | None,
        equivalence: Equivalence,
        embedding: EmbeddingQueue | None = None,
    ) -> None:
        self.config = config
        self.engine = engine
        self.store = store
        self.scoring = scoring
        self._by_confidence = ConfidenceScoring()
        self.equivalence = equivalence
        self.embedding = embedding
        self.on_capacity: Callable[[], None] = lambda: None
        self.draining = False
        self.leaving = asyncio.Event()
        self._slots: Slots[tuple[Search, Trace]] = Slots(engine.info.slots)
        self._scheduler = SchedulerView(engine.info.kv_blocks, engine.info.block_size)
        self._trees: dict[str, TreeRun] = {}
        self._tree_tasks: set[asyncio.Task[None]] = set()
        self._traces: dict[str, tuple[Search, int]] = {}  # whose outputs count
        self._adds: dict[str, _Add] = {}  # how each trace in a slot came, or comes, to the engine
        self._commands: asyncio.Queue[_Add | _Abort] = asyncio.Queue()
        self._group: TaskGroup | None = None
        self._settle_due = False
        self._presence_due = asyncio.Event()

    # ---- for the link to the gateway

    @property
    def accepts_request(self) -> bool:
        """Whether a new tree's first trace would get a slot at once."""
        if self.draining or not self._slots.accepts_request:
            return False
        return all(tree.started for tree in self._trees.values())

    def begin(self, tree_id: str, epoch: int, search: pb.Search) -> None:
        """Takes an assigned tree."""
        assert self._group is not None, "the worker is running"
        if (old := self._trees.get(tree_id)) is not None:
            old.lose()  # its lease ran out before it noticed
        run = self._trees[tree_id] = TreeRun(tree_id, epoch, search, self)
        task = self._group.create_task(self._run_tree(run), name=f"tree {tree_id}")
        self._tree_tasks.add(task)
        task.add_done_callback(self._tree_tasks.discard)

    async def _run_tree(self, run: TreeRun) -> None:
        try:
            await run.run()
        finally:
            if self._trees.get(run.tree_id) is run:
                del self._trees[run.tree_id]
            if self.scoring is not None:
                self.scoring.forget(scoring_id(run.tree_id, run.epoch))
            self._settle_soon()

    def cancel(self, tree_id: str) -> None:
        """Ends a tree as cancelled; unknown ones have ended already."""
        if (tree := self._trees.get(tree_id)) is not None:
            tree.cancel()

    # ---- life

    async def run(
        self, stop: asyncio.Event, link: Callable[[], Any], hurry: asyncio.Event | None = None
    ) -> None:
        """Works until `stop` is set and its trees have ended, or `drain_seconds` have passed, or `hurry` is
        set; then hands back the trees that are left. link: coroutine function that brings work.

        Raises EngineError when the engine dies; trees are handed back then, too.
        """
        async with task_group() as group:
            self._group = group
            gateway_link = group.create_task(link(), name="gateway link")
            tasks = [
                group.create_task(self._pump(), name="pump"),
                group.create_task(self._command_engine(), name="engine commands"),
                group.create_task(self._renew_leases(), name="leases"),
                group.create_task(self._stay_announced(), name="presence"),
            ]
            if self.scoring is not None:
                tasks.append(group.create_task(self.scoring.run(), name="scoring"))
            if self.embedding is not None:
                tasks.append(group.create_task(self.embedding.run(), name="embedding"))
            await stop.wait()
            await self._drain(group, hurry or asyncio.Event())
            log.info("worker_stopping", trees=len(self._trees))
            # no new trees; then, while those at hand go back, scores still come and leases are renewed
            self.leaving.set()
            await asyncio.wait([gateway_link], timeout=FAREWELL_SECONDS)
            await _cancel([gateway_link])
            await asyncio.sleep(0)  # the task of a tree that has just come has to begin, to hand it back
            await _cancel(self._tree_tasks)
            await _cancel(tasks)
        await self._clear_engine()
        await self._withdraw()

    async def _drain(self, group: TaskGroup, hurry: asyncio.Event) -> None:
        """Takes no more trees and lets those at hand end, for a while."""
        self.draining = True
        self.on_capacity()
        self._presence_due.set()
        if not self._tree_tasks or not self.config.drain_seconds:
            return
        log.info("worker_draining", trees=len(self._trees), seconds=self.config.drain_seconds)
        hurried = group.create_task(hurry.wait(), name="hurry")
        loop = asyncio.get_running_loop()
        end = loop.time() + self.config.drain_seconds
        while self._tree_tasks and not hurried.done() and (left := end - loop.time()) > 0:
            ending = {hurried, *self._tree_tasks}
            await asyncio.wait(ending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        await _cancel([hurried])

    async def _clear_engine(self) -> None:
        """Takes out of the engine what handed-back trees had in it; nobody reads the commands any more."""
        while not self._commands.empty():
            command = self._commands.get_nowait()
            if isinstance(command, _Abort):
                await self.engine.abort(command.trace_id)

    async def _pump(self) -> None:
        async for batch in self.engine.steps():
            steps = batch.step - self._scheduler.step if self._scheduler.step else 1
            self._scheduler.observe(batch.step, batch.kv_use)
            self._deliver(batch)
            del batch  # the next may be long in coming
            self._count_steps(steps)
            self._relieve()
            await self._rank()

    def _deliver(self, batch: StepBatch) -> None:
        for search, outputs in by_search(batch.outputs, self._traces):
            self._guard(search, partial(search.on_outputs, outputs))

    def _count_steps(self, steps: int) -> None:
        for search in self._searches():
            self._guard(search, partial(search.on_steps, steps))

    def _relieve(self) -> None:
        """Tells the tree furthest above its share that KV runs out."""
        told = self._scheduler.pressure(self._searches())
        if told is not None:
            tree_id, pressure = told
            search = self._trees[tree_id].search
            assert search is not None
            log.debug("pressure", tree_id=tree_id, blocks=pressure.blocks, kv_use=self.kv_use)
            self._guard(search, partial(search.on_pressure, pressure))

    async def _rank(self) -> None:
        """What no policy gives up, the engine preempts: the worst first."""
        if not self._scheduler.ranking_due:
            return
        ranks = self._scheduler.priorities(self._searches())
        await self.engine.set_priorities({trace_id(*place): rank for place, rank in ranks.items()})

    async def _command_engine(self) -> None:
        """Engine calls, one after the other: an abort never overtakes its add."""
        while True:
            await self._command(await self._commands.get())

    async def _command(self, command: _Add | _Abort) -> None:
        match command:
            case _Add(search, name, number, tokens, sampling):
                if self._adds.get(name) is not command:
                    return  # it has left again meanwhile
                # from here on: what is still on its way of a trace of this name that left is not of this one
                self._traces[name] = (search, number)
                stop = search.holds_at_boundaries
                try:
                    await self.engine.add(name, tokens, sampling, stop_at_boundary=stop)
                except EngineError as error:
                    if error.fatal:
                        raise
                    search.fail(error)
            case _Abort(name):
                await self.engine.abort(name)

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self.config.lease_seconds / 3)
            for tree_id in list(self._trees):
                await self._renew_lease(tree_id)

    async def _renew_lease(self, tree_id: str) -> None:
        if (tree := self._trees.get(tree_id)) is None:
            return  # it has ended meanwhile
        try:
            if await self.store.renew(tree_id, tree.epoch, self.config.lease_seconds):
                tree.cancel()
        except StaleEpochError:
            log.warning("lease_lost", tree_id=tree_id, epoch=tree.epoch)
            tree.lose()
        except StoreError as error:
            log.warning("lease_not_renewed", tree_id=tree_id, error=error)

    async def _stay_announced(self) -> None:
        while True:
            self._presence_due.clear()
            await self._announce()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.config.lease_seconds / 3):
                    await self._presence_due.wait()

    async def _announce(self) -> None:
        """Presence, for people and for the gateways."""
        info = self.engine.info
        fields = {
            "model": info.model,
            "slots": info.slots,
            "free_slots": self._slots.free,
            "waiting_traces": self._slots.waiting,
            "trees": len(self._trees),
            "kv_use": f"{self.kv_use:.4f}",
            "engine_step": self._scheduler.step,
            "state": "draining" if self.draining else "serving",
            "max_context": info.max_context,
            "max_capacity": self.config.max_capacity,
            "scorer": self.config.scorer_kind,
        }
        if self.scoring is not None:
            # searches may name `confidence` at every worker
            fields["scorer"] = self.scoring.scorer.kind or self.config.scorer_kind
            fields["prm_workers"] = self.scoring.serving
        texts = {name: str(value) for name, value in fields.items()}
        try:
            await self.store.announce_worker(self.config.name, texts, self.config.lease_seconds)
        except StoreError as error:
            log.warning("worker_not_announced", error=error)

    async def _withdraw(self) -> None:
        """Takes its presence away; else it would be listed until its lease has ended."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self.store.withdraw_worker(self.config.name)
        except (StoreError, TimeoutError) as error:
            log.warning("worker_not_withdrawn", error=error)

    # ---- Host: what searches ask for

    @property
    def kv_use(self) -> float:
        return self._scheduler.kv_use

    def enqueue(self, search: Search, trace: Trace) -> None:
        self._slots.submit(trace_id(search.tree_id, trace.number), (search, trace))
        self._settle_soon()

    def withdraw(self, search: Search, trace: Trace, *, running: bool) -> None:
        name = trace_id(search.tree_id, trace.number)
        self._slots.release(name)
        self._adds.pop(name, None)
        self._traces.pop(name, None)
        if running:
            self._commands.put_nowait(_Abort(name))
        self._settle_soon()

    def score(self, search: Search, rows: Sequence[BoundaryRow]) -> None:
        def deliver(scored: Sequence[ScoredRow]) -> None:
            self._guard(search, partial(search.on_scores, scored))

        self._scoring_of(search).submit(rows, deliver)

    def forget(self, search: Search, trace: Trace) -> None:
        if search.spec.scorer is not None:
            self._scoring_of(search).drop(search.spec.scoring_id, trace.number)

    def _scoring_of(self, search: Search) -> Scoring:
        if search.spec.scorer is ConfidenceScoring.scorer:
            return self._by_confidence
        assert self.scoring is not None, "admission refuses policies that need scores without a scorer"
        return self.scoring

    def embed(self, search: Search, thoughts: Sequence[ThoughtText]) -> None:
        assert self.embedding is not None, "admission refuses policies that need vectors without an embedder"

        def deliver(embedded: Sequence[EmbeddedThought]) -> None:
            self._guard(search, partial(search.on_embeddings, embedded))

        self.embedding.submit(thoughts, search.wants_embedding, deliver)

    def _settle_soon(self) -> None:
        if not self._settle_due:
            self._settle_due = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        """Free slots go to waiting traces, and to new requests when none waits."""
        self._settle_due = False
        for search, trace in self._slots.grant():
            name = trace_id(search.tree_id, trace.number)
            add = self._adds[name] = _Add(search, name, trace.number, *search.granted(trace))
            self._commands.put_nowait(add)
        self.on_capacity()

    def _searches(self) -> list[Search]:
        return [
            tree.search
            for tree in self._trees.values()
            if tree.search is not None and not tree.search.ended.is_set()
        ]

    def _guard(self, search: Search, event: Callable[[], None]) -> None:
        """A search that breaks ends alone."""
        try:
            event()
        except Exception as error:
            log.exception("search_broke", tree_id=search.tree_id)
            search.fail(error)


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels tasks and waits until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)
