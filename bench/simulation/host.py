"""A decoder worker in virtual time: real searches, slots and Scheduler View on a `ScriptedEngine`.

Nothing sleeps and nothing is stored. One loop does what the worker's tasks do between two engine steps:
requests arrive, scores and vectors come back after a delay, free slots go to pending traces.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from bench.rows import never_begun
from bench.simulation.world import RIGHT, SimulatedTokenizer, World
from decoder_worker.answers.candidates import candidate
from decoder_worker.answers.extraction import AnswerMode
from decoder_worker.embedding.queue import EmbeddedThought, ThoughtText
from decoder_worker.engine.base import SamplingSpec
from decoder_worker.engine.scripted import ScriptedConfig, ScriptedEngine
from decoder_worker.engine.scripted_traces import score_in
from decoder_worker.policies.base import Policy
from decoder_worker.routing import by_search, trace_id
from decoder_worker.scheduler_view import SchedulerView
from decoder_worker.scoring.client import BoundaryRow, ScoredRow
from decoder_worker.search import Search
from decoder_worker.slots import Slots
from decoder_worker.spec import SearchSpec
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import Trace
from tree_store.model import NodeState, RoundRecord, Thought


@dataclass(frozen=True, slots=True)
class Request:
    """One question and when it arrives, in seconds."""

    tree_id: str
    arrival: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a request. began, ended: in seconds, like arrival. generated: tokens of the tree;
    recomputed: those prefilled again. stopped: as in bench.rows.Run."""

    tree_id: str
    arrival: float
    began: float
    ended: float
    answer: str | None
    roots: int
    branches: int
    finished: int
    pruned: int
    stopped: int
    evictions: int
    generated: int
    recomputed: int

    @property
    def right(self) -> bool:
        return self.answer == RIGHT

    @property
    def latency(self) -> float:
        return self.ended - self.arrival

    @property
    def queued(self) -> float:
        """Seconds until its first trace had a slot."""
        return self.began - self.arrival


class NoLog(TreeLog):
    """Takes notes of a search and forgets them."""

    def __init__(self) -> None:
        pass

    def moved(self, trace: Trace, reason: str = "") -> None:
        pass

    def checkpoint(
        self, trace: Trace, tokens: Sequence[int], text: str, confidences: Sequence[float] = ()
    ) -> None:
        pass

    def thought(self, trace: Trace, thought: Thought, projected: bytes = b"") -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        pass

    def fields(self, **values: object) -> None:
        pass

    def policy_state(self, dump: Callable[[], str]) -> None:
        pass


@dataclass(slots=True, eq=False)
class _Tree:
    search: Search
    request: Request
    began: float


class Simulation:
    """Runs requests under one policy to their end; the `Host` of their searches.

    requests: in order of arrival. trace_limit: most generated tokens of a trace. score_delay: seconds from a
    boundary to its score, and to its vector. preemptions: of traces by the engine itself, so far.
    """

    def __init__(
        self,
        world: World,
        config: ScriptedConfig,
        policy: Callable[[], Policy[Any]],
        requests: Iterable[Request],
        *,
        trace_limit: int,
        score_delay: float = 0.02,
    ) -> None:
        self.engine = ScriptedEngine(world, config)
        self.ended: list[Ended] = []
        self._world = world
        self._policy = policy
        self._trace_limit = trace_limit
        self._score_delay = score_delay
        self._tokenizer = SimulatedTokenizer()
        self._slots: Slots[tuple[Search, Trace]] = Slots(config.slots)
        self._scheduler = SchedulerView(config.kv_blocks, config.block_size)
        self._arriving = deque(requests)
        self._trees: dict[str, _Tree] = {}
        self._traces: dict[str, tuple[Search, int]] = {}  # that the engine has
        self._due: list[tuple[float, int, Callable[[], None]]] = []  # a heap, by time and order
        self._order = 0

    @property
    def now(self) -> float:
        return self.engine.now

    @property
    def preemptions(self) -> int:
        return len(self.engine.preempted)

    def run(self) -> list[Ended]:
        """All requests, in the order in which they ended."""
        self._catch_up()
        while self._arriving or self._trees:
            if self._traces:
                self._step()
            else:
                self._jump()
            self._catch_up()
        return self.ended

    # ---- Host: what searches ask for

    @property
    def kv_use(self) -> float:
        return self._scheduler.kv_use

    def enqueue(self, search: Search, trace: Trace) -> None:
        self._slots.submit(trace_id(search.tree_id, trace.number), (search, trace))

    def withdraw(self, search: Search, trace: Trace, *, running: bool) -> None:
        name = trace_id(search.tree_id, trace.number)
        self._slots.release(name)
        self._traces.pop(name, None)
        if running:
            _at_once(self.engine.abort(name))

    def score(self, search: Search, rows: Sequence[BoundaryRow]) -> None:
        scored = [ScoredRow(row, score_in(row.row)) for row in rows]
        self._later(self._score_delay, partial(search.on_scores, scored))

    def forget(self, search: Search, trace: Trace) -> None:
        pass  # its scorer keeps nothing

    def embed(self, search: Search, thoughts: Sequence[ThoughtText]) -> None:
        embedded = [EmbeddedThought(t.node, t.index, self._world.embedding(t.text)) for t in thoughts]
        self._later(self._score_delay, partial(search.on_embeddings, embedded))

    # ---- time

    def _later(self, seconds: float, event: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (self.now + seconds, self._order, event))

    def _catch_up(self) -> None:
        """Everything that is due by now; then free slots go to pending traces, and to new requests when none
        waits."""
        while self._due and self._due[0][0] <= self.now:
            _, _, event = heapq.heappop(self._due)
            event()
        self._settle()
        while self._slots.accepts_request and self._arriving and self._arriving[0].arrival <= self.now:
            self._begin(self._arriving.popleft())
            self._settle()
        for tree in [tree for tree in self._trees.values() if tree.search.settled]:
            self._end(tree)

    def _jump(self) -> None:
        """Nothing runs: to the next moment at which something happens."""
        moments = [self._due[0][0]] if self._due else []
        if self._arriving and self._slots.accepts_request:
            moments.append(self._arriving[0].arrival)
        if moments:
            self.engine.now = max(self.now, min(moments))
        elif self._trees:
            raise RuntimeError(f"nothing will ever happen to {', '.join(self._trees)}")

    # ---- one engine step

    def _step(self) -> None:
        batch = self.engine.step()
        self._scheduler.observe(batch.step, batch.kv_use)
        for search, outputs in by_search(batch.outputs, self._traces):
            search.on_outputs(outputs)
        searches = self._searches()
        for search in searches:
            search.on_steps(1)
        self._relieve(searches)
        self._rank(searches)

    def _relieve(self, searches: Sequence[Search]) -> None:
        told = self._scheduler.pressure(searches)
        if told is not None:
            tree_id, pressure = told
            self._trees[tree_id].search.on_pressure(pressure)

    def _rank(self, searches: Sequence[Search]) -> None:
        if not self._scheduler.ranking_due:
            return
        ranks = self._scheduler.priorities(searches)
        _at_once(self.engine.set_priorities({trace_id(*place): rank for place, rank in ranks.items()}))

    def _searches(self) -> list[Search]:
        return [tree.search for tree in self._trees.values() if not tree.search.ended.is_set()]

    # ---- requests

    def _begin(self, request: Request) -> None:
        policy = self._policy()
        spec = SearchSpec(
            tree_id=request.tree_id,
            prompt=self._world.question(request.tree_id),
            sampling=SamplingSpec(),
            trace_limit=self._trace_limit,
            token_budget=0,
            deadline=float("inf"),
            answer_mode=AnswerMode.BOXED,
            answer_regex="",
            seed=self._world.seed,
        )
        search = Search(spec, policy, self, NoLog(), self._tokenizer)
        self._trees[request.tree_id] = _Tree(search, request, self.now)
        search.start()

    def _settle(self) -> None:
        for search, trace in self._slots.grant():
            tokens, sampling = search.granted(trace)
            name = trace_id(search.tree_id, trace.number)
            self._traces[name] = (search, trace.number)
            stop = search.holds_at_boundaries
            _at_once(self.engine.add(name, tokens, sampling, stop_at_boundary=stop))

    def _end(self, tree: _Tree) -> None:
        search, view = tree.search, tree.search.view
        if search.error is not None:
            raise search.error
        del self._trees[search.tree_id]
        groups: dict[str, int] = {}
        candidates = [
            candidate(t, None if t.answer is None else groups.setdefault(t.answer, len(groups)))
            for t in view.finished
        ]
        winner = search.vote(candidates).winner
        traces = view.traces.values()
        parameters = asdict(search.policy.parameters)
        self.ended.append(
            Ended(
                tree_id=search.tree_id,
                arrival=tree.request.arrival,
                began=tree.began,
                ended=self.now,
                answer=None if winner is None else view[winner.nodes[0]].answer,
                roots=view.roots,
                branches=len(view) - view.roots,
                finished=view.count(NodeState.FINISHED),
                pruned=view.count(NodeState.PRUNED),
                stopped=view.count(NodeState.CANCELLED) + never_begun(parameters, view.roots),
                evictions=sum(trace.evictions for trace in traces),
                generated=view.generated,
                recomputed=search.recomputed,
            )
        )


def _at_once(call: Coroutine[Any, Any, None]) -> None:
    """Runs an engine call of a `ScriptedEngine`, which never waits."""
    try:
        call.send(None)
    except StopIteration:
        return
    raise RuntimeError("the scripted engine waited")
