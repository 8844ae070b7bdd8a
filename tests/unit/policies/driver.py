"""A search without engine, scorer or store: drives a policy over a Tree View and checks every rule.

`Driver` is told what happens, step by step. `play` lets a `World` decide it: how long thoughts and traces
are, and what the scorer says.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from decoder_worker.answers.candidates import candidate
from decoder_worker.answers.votes import Candidate, Decision
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
    Resume,
    Revive,
    SpawnRoot,
    Started,
    StepsPassed,
    ThoughtsEmbedded,
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
    """Runs one search. slots: traces that are live at once; None: any number. seed: the search's.

    Of a policy that holds traces at boundaries, a trace is held as soon as it has passed one.
    reload: makes a new policy before every step; the state goes through dump and load.
    """

    def __init__(
        self,
        policy: Policy[Any],
        *,
        slots: int | None = None,
        seed: int = 0,
        reload: Callable[[], Policy[Any]] | None = None,
    ) -> None:
        self.policy = policy
        self.view = TreeView()
        self.log: list[Entry] = []
        self.ended = False
        self._slots = slots
        self._reload = reload
        self._state = policy.initial(seed)
        self._queue: deque[Trace] = deque()
        self._spawned: Counter[str] = Counter()  # roots and branches that the policy asked for
        self._answered: Counter[int] = Counter()  # thoughts that have come back from the scorer, by node

    # ---- what happens

    def start(self) -> tuple[Action, ...]:
        return self.observe(Started())

    def generate(self, number: int, tokens: int, confidences: Sequence[float] = ()) -> None:
        """A live trace generates tokens. confidences: one per token, or none."""
        trace = self.view[number]
        assert trace.state is NodeState.LIVE
        self.view.append_tokens(trace, [number] * tokens, confidences)

    def boundary(self, number: int, tokens: int, confidences: Sequence[float] = ()) -> None:
        """A live trace generates a thought; its score is still to come."""
        self.generate(number, tokens, confidences)
        trace = self.view[number]
        trace.thoughts.append(Thought(trace.total_tokens))
        if self.policy.holds_at_boundaries:
            self.view.move(trace, NodeState.HELD)
            self._admit()

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

    def embed(self, *embedded: tuple[int, int, Sequence[float]]) -> tuple[Action, ...]:
        """Vectors arrive: (node, index of the merged thought, vector)."""
        for number, index, vector in embedded:
            self.view[number].embeddings[index] = array("f", vector)
        return self.observe(ThoughtsEmbedded(tuple((number, index) for number, index, _ in embedded)))

    def steps(self, steps: int | None = None, kv_use: float = 0.0) -> tuple[Action, ...]:
        """The policy's number of engine steps passes, or another one."""
        return self.observe(StepsPassed(steps or self.policy.check_every, kv_use))

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
        """Tells the policy, if so, that the engine runs nothing for this search; it must end or go on."""
        if self.ended or self.view.count(NodeState.PENDING, NodeState.LIVE) or self.awaiting:
            return ()
        actions = self.observe(EngineIdle())
        assert self.ended or self.view.count(NodeState.PENDING, NodeState.LIVE)
        return actions

    @property
    def awaiting(self) -> bool:
        """Whether the score of a held trace is on its way."""
        return any(len(t.thoughts) > self._answered[t.number] for t in self.view.in_state(NodeState.HELD))

    def vote(self, groups: Mapping[str, int]) -> Decision:
        """The policy's vote at this moment. groups: group by answer."""
        return self.policy.vote(self._state, self.view, self.candidates(groups))

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
        going = [a.node for a in actions if isinstance(a, Resume | Revive)]
        if not self.policy.holds_at_boundaries:
            assert len(set(parents)) == len(parents), "one child per parent and round"
        assert len({*removed, *going}) == len(removed) + len(going)
        assert not set(parents) & set(removed)
        assert all(self.view[n].state in COUNTING for n in (*parents, *removed))
        branchable = (NodeState.LIVE, NodeState.HELD)
        assert all(self.view[n].state in branchable for n in parents), "ghosts are never branched"
        assert all(self.view[a.node].state is NodeState.HELD for a in actions if isinstance(a, Resume))
        assert all(self.view[a.node].state is NodeState.GHOST for a in actions if isinstance(a, Revive))
        for parent in parents:
            if self.view[parent].state is NodeState.HELD:
                at = self.view[parent].last_scored()
                assert at is not None
                assert at.position == self.view[parent].total_tokens, "branched where it stands"
        if any(isinstance(a, Evict) for a in actions):
            assert len(removed) < self.view.count(NodeState.LIVE), "the last live trace stays"
        assert not any(isinstance(a, Finish) for a in actions[:-1]), "nothing follows Finish"

    def _act(self, action: Action) -> None:
        match action:
            case SpawnRoot():
                self._spawned["roots"] += 1
                self._queue.append(self.view.add_root())
            case Branch(parent=parent):
                self._spawned["branches"] += 1
                self._queue.append(self.view.add_branch(self.view[parent]))
            case Prune(node=node):
                self.view.move(self.view[node], NodeState.PRUNED)
            case Evict(node=node):
                self.view.move(self.view[node], NodeState.GHOST)
            case Resume(node=node) | Revive(node=node):
                self.view.move(self.view[node], NodeState.PENDING)
                self._queue.append(self.view[node])
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
        counts.update(nodes=len(self.view), **self._spawned)
        return counts

    @property
    def rounds(self) -> list[Entry]:
        return [entry for entry in self.log if entry.tournament]

    def check_end(self) -> None:
        """The accounting that holds at the end of every search."""
        counts = self.counts
        assert self.ended
        assert counts["nodes"] == counts["roots"] + counts["branches"]
        assert counts["roots"] == self.view.roots
        assert counts["nodes"] == counts["finished"] + counts["pruned"] + counts["cancelled"]

    def candidates(self, groups: Mapping[str, int]) -> list[Candidate]:
        """The finished traces as a vote sees them. groups: group by answer."""
        return [
            candidate(trace, None if trace.answer is None else groups[trace.answer])
            for trace in self.view.finished
        ]


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

    def confidences(self, trace: Trace, tokens: int) -> list[float]:
        """One per token that it generates next."""
        ...

    def embedding(self, trace: Trace, index: int) -> list[float] | None:
        """Vector of its merged thought of this index; None: it could not be made."""
        ...

    def answer(self, trace: Trace) -> str | None:
        """What it answers when it ends."""
        ...


def kv_blocks(trace: Trace) -> int:
    return math.ceil(trace.total_tokens / BLOCK)


class Play:
    """A search that a world decides: each tick, every live trace generates one thought.

    kv: KV blocks of the engine; None: enough. delay: ticks until scores and vectors arrive.
    """

    def __init__(self, driver: Driver, world: World, *, kv: int | None, delay: int) -> None:
        self._driver = driver
        self._world = world
        self._kv = kv
        self._delay = delay
        self._lengths: dict[int, int] = {}
        self._embedded: Counter[int] = Counter()
        self._steps = 0
        self._on_their_way: deque[tuple[list[Any], list[Any]]] = deque()

    def tick(self) -> None:
        driver = self._driver
        finished, scored, longest = self._decode()
        self._on_their_way.append((scored, self._vectors() if driver.policy.needs_embeddings else []))
        if len(self._on_their_way) > self._delay:
            self._arrive(*self._on_their_way.popleft())
        for answer, numbers in finished.items():
            alive = [n for n in numbers if driver.view[n].state is NodeState.LIVE]
            if alive:
                driver.finish(*alive, answer=answer)
        self._steps += longest
        if driver.policy.check_every and self._steps >= driver.policy.check_every:
            driver.steps(self._steps, self.kv_use)
            self._steps = 0
        if self._kv is not None and not driver.ended and self.kv_use > driver.policy.high_water:
            driver.press(math.ceil((self.kv_use - driver.policy.high_water) * self._kv))
        driver.check_idle()

    @property
    def kv_use(self) -> float:
        used = sum(kv_blocks(t) for t in self._driver.view.in_state(NodeState.LIVE))
        return used / self._kv if self._kv else 0.0

    def _decode(self) -> tuple[dict[str | None, list[int]], list[tuple[int, float | None]], int]:
        """What finishes, by answer; the scores that will come; and the tokens of the longest thought."""
        finished: dict[str | None, list[int]] = {}
        scored = []
        longest = 0
        for trace in self._driver.view.in_state(NodeState.LIVE):
            length = self._lengths.setdefault(trace.number, self._world.length(trace))
            left = max(1, length - trace.total_tokens)
            tokens = min(self._world.thought(trace), left)
            asked = self._driver.policy.needs_confidence
            confidences = self._world.confidences(trace, tokens) if asked else ()
            longest = max(longest, tokens)
            if tokens == left:
                self._driver.generate(trace.number, tokens, confidences)
                finished.setdefault(self._world.answer(trace), []).append(trace.number)
            else:
                self._driver.boundary(trace.number, tokens, confidences)
                scored.append((trace.number, self._world.score(trace)))
        return finished, scored, longest

    def _vectors(self) -> list[tuple[int, int, list[float]]]:
        policy, found = self._driver.policy, []
        for trace in self._driver.view.in_state(NodeState.LIVE):
            merged = len(trace.merged_thoughts(policy.shortest_embedded))
            for index in range(max(self._embedded[trace.number], policy.first_embedded), merged):
                vector = self._world.embedding(trace, index)
                if vector is not None:
                    found.append((trace.number, index, vector))
            self._embedded[trace.number] = merged
        return found

    def _arrive(
        self, scored: list[tuple[int, float | None]], vectors: list[tuple[int, int, list[float]]]
    ) -> None:
        if self._driver.policy.needs_scores:
            self._driver.deliver(*scored)
        if vectors and not self._driver.ended:
            self._driver.embed(*vectors)


def play(driver: Driver, world: World, *, kv: int | None = None, delay: int = 0, most: int = 20_000) -> None:
    """Runs a search to its end. most: ticks after which it counts as endless. See `Play`."""
    playing = Play(driver, world, kv=kv, delay=delay)
    driver.start()
    for _ in range(most):
        playing.tick()
        if driver.ended:
            return
    raise AssertionError(f"no end after {most} ticks")
