"""A decoder worker on a scripted engine and a real tree store; trees come straight from the store."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf import json_format

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.embedding.base import Embedder
from decoder_worker.embedding.queue import EmbeddingQueue
from decoder_worker.engine.base import SamplingSpec, StepBatch
from decoder_worker.engine.scripted import ScriptedConfig, ScriptedEngine
from decoder_worker.engine.scripted_traces import Drawn, Replay, ScriptedTokenizer, TraceSource, score_in
from decoder_worker.gateway_link import GatewayLink
from decoder_worker.scoring.client import BoundaryRow, Deliver, ScoredRow, ScorerInfo, ScoringClient
from decoder_worker.worker import Worker, WorkerConfig
from tests.integration.gateway.harness import eventually
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.events import Event
from tree_store.model import NewTree, NodeRecord, NodeState, TreeRecord
from tree_store.store import TreeStore

TURNS = 20  # of the event loop, in which everything that an engine step causes in this process has happened
SCRIPTED = ScorerInfo("scripted", scorer_id="scripted")
LONG_LEASE = 60.0  # seconds; longer than any test


class RecordingEngine(ScriptedEngine):
    """added: trace ids in the order in which they came. generated: tokens that it has sampled. most: traces
    that it has had at once. gate: closed, it lets no add through."""

    def __init__(self, source: TraceSource, config: ScriptedConfig | None = None) -> None:
        super().__init__(source, config)
        self.added: list[str] = []
        self.generated = 0
        self.most = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def add(
        self,
        trace_id: str,
        token_ids: Sequence[int],
        sampling: SamplingSpec,
        *,
        stop_at_boundary: bool = False,
    ) -> None:
        self.added.append(trace_id)
        await self.gate.wait()
        await super().add(trace_id, token_ids, sampling, stop_at_boundary=stop_at_boundary)
        self.most = max(self.most, len(self._traces))

    @property
    def busy(self) -> bool:
        """Whether it has a trace; without one it makes no step."""
        return bool(self._traces)

    def step(self) -> StepBatch:
        batch = super().step()
        self.generated += sum(len(output.tokens) for output in batch.outputs)
        return batch

    async def advance(self, steps: int = 1) -> None:
        """So many steps and what follows from each; then the engine waits."""
        for _ in range(steps):
            before = self.step_number
            self.pace(1)
            while self.step_number == before:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0)
            await turns()


def drawn(seed: int, **kind: Any) -> TraceSource:
    """Traces at random, the same for every tree. kind: see Drawn."""
    return _Everywhere(Drawn(seed, **kind))


def replayed(*traces: Sequence[int]) -> TraceSource:
    """These traces, the first for node 1, the same for every tree."""
    return _Everywhere(Replay({str(number): trace for number, trace in enumerate(traces, 1)}))


@dataclass(frozen=True)
class _Everywhere:
    source: TraceSource

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        return self.source.continuation(trace_id.rpartition("/")[2], tokens)


async def turns() -> None:
    """Lets everything happen that waits for nothing but its turn."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@dataclass(eq=False)
class ScriptedScoring:
    """In the place of a ScoringClient: a row's score is what the row carries. It is there one turn of the
    event loop later, so that it depends on no machine; while `holding`, scores wait for `release`. exact:
    they are float32, as a real scorer's, and not the thousandths that traces are written with. dropped:
    traces of which nothing needs to be kept."""

    holding: bool = False
    exact: bool = False
    held: list[tuple[BoundaryRow, Deliver]] = field(default_factory=list)
    scorer: ScorerInfo = SCRIPTED
    serving: int = 1
    dropped: list[tuple[str, int]] = field(default_factory=list)

    def submit(self, rows: Sequence[BoundaryRow], deliver: Deliver) -> None:
        if self.holding:
            self.held += [(row, deliver) for row in rows]
        else:
            asyncio.get_running_loop().call_soon(deliver, [self._scored(row) for row in rows])

    def release(self) -> None:
        held, self.held, self.holding = self.held, [], False
        for row, deliver in held:
            deliver([self._scored(row)])

    def _scored(self, row: BoundaryRow) -> ScoredRow:
        score = score_in(row.row)
        if math.isnan(score):
            return ScoredRow(row, None, "NONFINITE_ROW")
        # a float32 carries thousandths to seven digits
        return ScoredRow(row, score if self.exact else round(score, 3))

    def drop(self, tree_id: str, node: int) -> None:
        self.dropped.append((tree_id, node))

    def forget(self, tree_id: str) -> None:
        self.held = [(row, deliver) for row, deliver in self.held if row.tree_id != tree_id]

    async def run(self) -> None:
        await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class Bench:
    """A running worker. store: a connection of the test's own to the same Redis. running: ends when it has
    stopped."""

    worker: Worker
    engine: RecordingEngine
    store: TreeStore
    stop: asyncio.Event
    hurry: asyncio.Event
    running: asyncio.Task[None]

    async def give(self, tree_id: str) -> int:
        """Assigns a queued tree to this worker, as a gateway would. Returns the epoch."""
        assigned = await self.store.assign(tree_id, self.worker.config.name, LONG_LEASE)
        self.worker.begin(tree_id, assigned.epoch, json_format.Parse(assigned.search, pb.Search()))
        return assigned.epoch

    async def start(self, policy: str, **asked: Any) -> str:
        """A new tree, given to this worker."""
        tree_id = await queue(self.store, policy, **asked)
        await self.give(tree_id)
        return tree_id

    async def solve(self, policy: str, **asked: Any) -> TreeRecord:
        """A whole search."""
        return await ended(self.store, await self.start(policy, **asked))


@asynccontextmanager
async def working(
    redis_url: str,
    engine: RecordingEngine,
    *,
    name: str = "first",
    profile: str = "tiny",
    max_capacity: int = 512,
    lease: float = LONG_LEASE,
    drain: float = 0.0,
    gateway: str = "",
    scoring: ScriptedScoring | ScoringClient | None = None,
    has_scorer: bool = True,
    equivalence: Equivalence | None = None,
    embedder: Embedder | None = None,
    own_store: TreeStore | None = None,
) -> AsyncIterator[Bench]:
    """A worker for the length of the block; then it hands back what it runs, as at SIGTERM.

    gateway: host:port of one to be linked to; by default trees come from `Bench.give` only. own_store: the
    worker's; by default one on redis_url. scoring: by default scripted; has_scorer: else none. embedder: by
    default none.
    """
    store, of_worker = TreeStore.connect(redis_url), own_store or TreeStore.connect(redis_url)
    stop, hurry, up = asyncio.Event(), asyncio.Event(), asyncio.Event()
    embedding = None if embedder is None else EmbeddingQueue(lambda: embedder)

    async def on_state(serving: bool) -> None:
        if serving:
            up.set()

    try:
        async with equivalence or Equivalence() as grouping:
            kind = "scripted" if has_scorer else ""
            config = WorkerConfig(name, profile, max_capacity, lease, drain, kind)
            scorer: Any = (scoring or ScriptedScoring()) if has_scorer else None
            worker = Worker(config, engine, of_worker, scorer, grouping, embedding)

            async def no_link() -> None:
                up.set()
                await worker.leaving.wait()

            link = GatewayLink(gateway, worker, on_state).run if gateway else no_link
            running = asyncio.create_task(worker.run(stop, link, hurry))
            try:
                await up.wait()
                yield Bench(worker, engine, store, stop, hurry, running)
            finally:
                stop.set()
                hurry.set()
                await running
    finally:
        if embedding is not None:
            await embedding.close()
        await of_worker.close()
        await store.close()


async def queue(
    store: TreeStore,
    policy: str,
    *,
    tree_id: str = "",
    seconds: float = 60.0,
    question: str = "What is 6 x 7?",
    trace_tokens: int = 0,
    parameters: dict[str, Any] | None = None,
    **fields: Any,
) -> str:
    """A new queued tree. seconds: until its deadline. fields: others of the Search message."""
    search = pb.Search(question=question, policy=policy, **fields)
    search.budgets.trace_tokens = trace_tokens
    search.parameters.update(parameters or {})
    new = NewTree(
        tree_id=tree_id or str(uuid.uuid4()),
        search=json_format.MessageToJson(search),
        digest="digest",
        model="scripted",
        policy=policy,
        profile=search.profile,
        question=question,
        deadline=time.time() + seconds,
    )
    assert await store.create(new)
    await store.enqueue(new.tree_id)
    return new.tree_id


async def ended(store: TreeStore, tree_id: str) -> TreeRecord:
    """The tree once it has ended; its accounts add up then."""

    async def there() -> bool:
        return (await store.tree(tree_id)).state.terminal

    await eventually(there)
    record = await store.tree(tree_id)
    assert_accounts(record, await all_nodes(store, tree_id))
    return record


def assert_accounts(record: TreeRecord, nodes: Sequence[NodeRecord]) -> None:
    """nodes = roots + branches = finished + pruned + cancelled, by the counters and by the nodes."""
    counts = record.counts
    assert [node.node for node in nodes] == list(range(1, counts["nodes"] + 1))
    assert counts["nodes"] == counts["roots"] + counts["branches"]
    assert counts["nodes"] == counts["finished"] + counts["pruned"] + counts["cancelled"]
    assert counts["branches"] == sum(node.parent is not None for node in nodes)
    for state in NodeState:
        assert counts[state] == sum(node.state is state for node in nodes), state


async def assert_each_token_counts_once(store: TreeStore, record: TreeRecord) -> None:
    """`generated` is what the nodes hold. Only where none was lost: not of a tree that failed, or whose owner
    could not hand it back."""
    nodes = await all_nodes(store, record.tree_id)
    assert record.usage["generated"] == sum(node.unique_tokens for node in nodes)
    contents = await store.contents(record.tree_id, [node.node for node in nodes])
    assert [len(content.tokens) for content in contents] == [node.unique_tokens for node in nodes]


async def assert_texts_fit(store: TreeStore, tree_id: str) -> None:
    """The text of each trace, put together from its ancestors' texts up to where it leaves them, is that of
    its tokens."""
    nodes = await all_nodes(store, tree_id)
    contents = await store.contents(tree_id, [node.node for node in nodes])
    decode = ScriptedTokenizer().decode

    def up_to(number: int, position: int | None) -> tuple[bytes, tuple[int, ...]]:
        node, content = nodes[number - 1], contents[number - 1]
        text, tokens = up_to(node.parent, node.branch_position) if node.parent else (b"", ())
        if position is None:
            return text + content.text.encode(), tokens + content.tokens
        end = next(thought.text_end for thought in content.thoughts if thought.position == position)
        return text + content.text.encode()[:end], (tokens + content.tokens)[:position]

    for node, content in zip(nodes, contents, strict=True):
        for position in (*(thought.position for thought in content.thoughts), None):
            text, tokens = up_to(node.node, position)
            assert text.decode() == decode(tokens)


async def all_nodes(store: TreeStore, tree_id: str) -> list[NodeRecord]:
    return await store.nodes(tree_id, count=(await store.tree(tree_id)).counts["nodes"] or 1)


async def feed(store: TreeStore, tree_id: str, after: str = "") -> list[Event]:
    """All events later than `after`, but for the samples of counters, which come when time has passed."""
    found = await store.events(tree_id, after, count=100_000)
    return [event for event in found if event.kind != "progress"]


def paths(events: Sequence[Event]) -> dict[int, list[str]]:
    """The states that each node has been in, in order."""
    walked: dict[int, list[str]] = {}
    for event in events:
        if event.kind == "node":
            path = walked.setdefault(int(event.fields["node"]), [])
            assert event.fields.get("from") == (path[-1] if path else None)
            path.append(event.fields["to"])
    return walked


def parents(events: Sequence[Event]) -> dict[int, int]:
    """The parents of the branches."""
    born = [e.fields for e in events if e.kind == "node" and "parent" in e.fields]
    return {int(fields["node"]): int(fields["parent"]) for fields in born}


def rounds(events: Sequence[Event]) -> list[tuple[list[int], list[int]]]:
    """Of each tournament, the pruned and the parents branched from, in order."""
    return [
        (_numbers(event.fields["pruned"]), _numbers(event.fields["branched"]))
        for event in events
        if event.kind == "round"
    ]


def _numbers(listed: str) -> list[int]:
    return [int(number) for number in listed.split(",") if number]
