"""A search without engine, scorer or store: drives a policy over a Tree View and checks every rule.

`Driver` is told what happens, step by step. `play` lets a `World` decide it: how long thoughts and traces
are, and what the scorer says.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from decoder_worker.answers.votes import Candidate
from decoder_worker.policies import Limits, make_policy
from decoder_worker.policies.base import (
    Action,
    BoundariesScored,
    Branch,
    EngineIdle,
    Evict,
    Finish,
    Observation,
    Policy,
    Pressure,
    Prune,
    SpawnRoot,
    Started,
    TracesFinished,
)
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import COUNTING, NodeState, Thought

LIMITS = Limits(max_capacity=4096, max_context=32_768)
BLOCK = 16  # tokens per KV block


def policy(name: str, profile: str = "tiny", **overrides: object) -> Policy[Any]:
    return make_policy(name, profile, overrides, LIMITS)


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of the policy: what it saw and what it did."""

    observation: Observation
    actions: tuple[Action, ...]
    tournament: bool


class Driver:
    """Runs one search. slots: traces that are live at once; None: any number.

    reload: makes a new policy before every step; the state goes through dump and load.
    """

    def __init__(
        self,
        policy: Policy[Any],
        *,
        slots: int | None = None,
        reload: Callable[[], Policy[Any]] | None = None,
    ) -> None:
        self.policy = policy
        self.view = TreeView()
        self.log: list[Entry] = []
        self.ended = False
        self._slots = slots
        self._reload = reload
        self._state = policy.initial(seed=0)
        self._queue: deque[Trace] = deque()
        self._answered: Counter[int] = Counter()  # thoughts that have come back from the scorer, by node

    # ---- what happens

    def start(self) -> tuple[Action, ...]:
        return self.observe(Started())

    def generate(self, number: int, tokens: int) -> None:
        """A live trace generates tokens."""
        trace = self.view[number]
        assert trace.state is NodeState.LIVE
        self.view.append_tokens(trace, [number] * tokens)

    def boundary(self, number: int, tokens: int) -> None:
        """A live trace generates a thought; its score is still to come."""
        self.generate(number, tokens)
        trace = self.view[number]
        trace.thoughts.append(Thought(trace.total_tokens))

    def deliver(self, *scored: tuple[int, float | None]) -> tuple[Action, ...]:
        """Scores arrive, for each trace's first thought without one; None: the row was refused."""
        news = []
        for number, score in scored:
            trace = self.view[number]
            if score is not None:
                self.view.set_score(trace, self._answered[number], score)
                news.append((number, score))
            self._answered[number] += 1
        return self.observe(BoundariesScored(tuple(news))) if news else ()

    def think(self, *scored: tuple[int, float], tokens: int = 10) -> tuple[Action, ...]:
        """Traces pass a boundary each, and the scores arrive together."""
        for number, _ in scored:
            self.boundary(number, tokens)
        return self.deliver(*scored)

    def finish(self, *numbers: int, answer: str | None = None) -> tuple[Action, ...]:
        """Live traces reach their end."""
        for number in numbers:
            self.view[number].answer = answer
            self.view.move(self.view[number], NodeState.FINISHED)
        return self.observe(TracesFinished(numbers))

    def press(self, blocks: int, held: Mapping[int, int] | None = None) -> tuple[Action, ...]:
        """The engine runs out of KV. held: blocks by live trace; default: as many as its tokens fill."""
        if held is None:
            held = {t.number: kv_blocks(t) for t in self.view.in_state(NodeState.LIVE)}
        return self.observe(Pressure(blocks, tuple(sorted(held.items()))))

    def check_idle(self) -> tuple[Action, ...]:
        """Tells the policy, if so, that the engine runs nothing for this search."""
        if self.ended or self.view.count(NodeState.PENDING, NodeState.LIVE):
            return ()
        return self.observe(EngineIdle())

    # ---- what the policy does about it

    def observe(self, observation: Observation) -> tuple[Action, ...]:
        if self.ended:
            return ()
        if self._reload is not None:
            text = self.policy.dump(self._state)
            self.policy = self._reload()
            self._state = self.policy.load(text)
        step = self.policy.step(self._state, self.view, observation)
        self._state = step.state
        self.log.append(Entry(observation, step.actions, step.tournament))
        self._check(step.actions)
        for action in step.actions:
            self._act(action)
        self._admit()
        return step.actions

    def _check(self, actions: Sequence[Action]) -> None:
        """Rules for the actions of one step, on the view that the policy saw."""
        parents = [a.parent for a in actions if isinstance(a, Branch)]
        removed = [a.node for a in actions if isinstance(a, Prune | Evict)]
        assert len(set(parents)) == len(parents), "one child per parent and round"
        assert len(set(removed)) == len(removed)
        assert not set(parents) & set(removed)
        assert all(self.view[n].state in COUNTING for n in (*parents, *removed))
        assert all(self.view[n].state is NodeState.LIVE for n in parents), "ghosts are never branched"
        if any(isinstance(a, Evict) for a in actions):
            assert len(removed) < self.view.count(NodeState.LIVE), "the last live trace stays"
        assert not any(isinstance(a, Finish) for a in actions[:-1]), "nothing follows Finish"

    def _act(self, action: Action) -> None:
        match action:
            case SpawnRoot():
                self._queue.append(self.view.add_root())
            case Branch(parent=parent):
                self._queue.append(self.view.add_branch(self.view[parent]))
            case Prune(node=node):
                self.view.move(self.view[node], NodeState.PRUNED)
            case Evict(node=node):
                self.view.move(self.view[node], NodeState.GHOST)
            case Finish():
                for trace in self.view.counting:
                    self.view.move(trace, NodeState.CANCELLED)
                self.ended = True
        assert self.view.capacity_count <= self.policy.capacity, "capacity is never exceeded"
        counts = self.counts
        assert counts["branches"] <= counts["pruned"] + counts["finished"]

    def _admit(self) -> None:
        """Pending traces take the free slots, first come first served."""
        while self._queue and (self._slots is None or self.view.count(NodeState.LIVE) < self._slots):
            trace = self._queue.popleft()
            if trace.state is NodeState.PENDING:
                self.view.move(trace, NodeState.LIVE)

    # ---- what can be read

    @property
    def counts(self) -> Counter[str]:
        """Nodes, roots, branches, and nodes by state."""
        counts = Counter({state.value: self.view.count(state) for state in NodeState})
        counts.update(nodes=len(self.view), roots=self.view.roots, branches=len(self.view) - self.view.roots)
        return counts

    @property
    def rounds(self) -> list[Entry]:
        return [entry for entry in self.log if entry.tournament]

    def check_end(self) -> None:
        """The accounting that holds at the end of every search."""
        counts = self.counts
        assert self.ended
        assert counts["nodes"] == counts["roots"] + counts["branches"]
        assert counts["nodes"] == counts["finished"] + counts["pruned"] + counts["cancelled"]

    def candidates(self, groups: Mapping[str, int]) -> list[Candidate]:
        """The finished traces as a vote sees them. groups: group by answer."""
        found = []
        for trace in self.view.finished:
            scores = trace.scores()
            found.append(
                Candidate(
                    node=trace.number,
                    group=None if trace.answer is None else groups[trace.answer],
                    order=trace.finish_order or 0,
                    mean_score=trace.mean_score,
                    last_score=scores[-1] if scores else None,
                    min_score=min(scores, default=None),
                )
            )
        return found


class World(Protocol):
    """What chance and the scorer decide in `play`."""

    def thought(self, trace: Trace) -> int:
        """Tokens of its next thought, at least 1."""
        ...

    def length(self, trace: Trace) -> int:
        """Tokens of the whole sequence at which it ends; asked once, after its first thought."""
        ...

    def score(self, trace: Trace) -> float | None:
        """Score of the thought that it has just passed."""
        ...


def kv_blocks(trace: Trace) -> int:
    return math.ceil(trace.total_tokens / BLOCK)


def play(driver: Driver, world: World, *, kv: int | None = None, delay: int = 0, most: int = 20_000) -> None:
    """Runs a search to its end: each tick, every live trace generates one thought.

    kv: KV blocks of the engine; None: enough. delay: ticks until scores arrive. most: ticks after which the
    search counts as endless.
    """
    lengths: dict[int, int] = {}
    on_their_way: deque[list[tuple[int, float | None]]] = deque()
    driver.start()
    for _ in range(most):
        finished, scored = [], []
        for trace in driver.view.in_state(NodeState.LIVE):
            tokens = world.thought(trace)
            length = lengths.setdefault(trace.number, world.length(trace))
            if trace.total_tokens + tokens >= length:
                driver.generate(trace.number, max(1, length - trace.total_tokens))
                finished.append(trace.number)
            else:
                driver.boundary(trace.number, tokens)
                scored.append((trace.number, world.score(trace)))
        on_their_way.append(scored)
        if len(on_their_way) > delay:
            driver.deliver(*on_their_way.popleft())
        alive = [n for n in finished if driver.view[n].state is NodeState.LIVE]
        if alive:
            driver.finish(*alive, answer="42")
        if kv is not None and not driver.ended:
            used = sum(kv_blocks(t) for t in driver.view.in_state(NodeState.LIVE))
            if used > kv * driver.policy.high_water:
                driver.press(math.ceil(used - kv * driver.policy.high_water))
        driver.check_idle()
        if driver.ended:
            return
    raise AssertionError(f"no end after {most} ticks")
