"""The in-process Tree View: every node of one search with its logical state, scores and tokens.

The search changes it, the policy reads it, Redis follows it. Positions count generated tokens of the whole
sequence; the prompt is not included.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from decoder_worker.answers.confidence import of_thought
from tree_store.model import COUNTING, NODE_TRANSITIONS, NodeState, Thought

_NUMBER = attrgetter("number")


class IllegalTransitionError(RuntimeError):
    """A node was asked to go where the state machine does not lead."""


def _running_sum(scores: Iterable[float]) -> float:
    """What adding the scores one by one as they arrive gives, to the last bit (`sum` may compensate), so that
    a branch starts with exactly its parent's mean score, and a restored trace with the one it had."""
    total = 0.0
    for score in scores:
        total += score
    return total


@dataclass(slots=True, eq=False)
class Trace:
    """One reasoning trajectory. A root starts at the prompt, a branch at a scored boundary of its parent."""

    number: int
    parent: Trace | None = field(repr=False)
    branch_position: int = 0
    state: NodeState = NodeState.PENDING
    tokens: array[int] = field(default_factory=lambda: array("i"), repr=False)
    thoughts: list[Thought] = field(default_factory=list, repr=False)
    # what a policy asked for beyond scores: one confidence per own token, vectors by merged thought
    confidences: array[float] = field(default_factory=lambda: array("f"), repr=False)
    embeddings: dict[int, array[float]] = field(default_factory=dict, repr=False)
    # what a scorer with a history keeps of each of its own scored thoughts
    projected: list[bytes] = field(default_factory=list, repr=False)
    text_bytes: int = 0  # of its own text (UTF-8), as far as it was checkpointed
    finish_reason: str = ""
    finish_order: int | None = None
    answer: str | None = None
    evictions: int = 0
    # the inherited part, fixed at birth
    inherited_thoughts: int = 0
    inherited_scored: int = 0
    inherited_sum: float = 0.0
    # running sums over its own scored thoughts
    own_scored: int = 0
    own_sum: float = 0.0

    @property
    def own_tokens(self) -> int:
        """Tokens that it has generated itself."""
        return len(self.tokens)

    @property
    def total_tokens(self) -> int:
        """Generated tokens of the whole sequence, inherited ones included."""
        return self.branch_position + len(self.tokens)

    @property
    def scored(self) -> int:
        return self.inherited_scored + self.own_scored

    @property
    def mean_score(self) -> float | None:
        """Mean over all its scored thoughts, inherited ones included once; None without any."""
        return (self.inherited_sum + self.own_sum) / self.scored if self.scored else None

    @property
    def thought_count(self) -> int:
        """Boundaries passed, inherited ones included."""
        return self.inherited_thoughts + len(self.thoughts)

    def inherit(self, parent: Trace) -> None:
        """Takes over the parent's thoughts and scores up to the branch position."""
        shared = [t for t in parent.thoughts if t.position <= self.branch_position]
        scores = [t.score for t in shared if t.score is not None]
        self.inherited_thoughts = parent.inherited_thoughts + len(shared)
        self.inherited_scored = parent.inherited_scored + len(scores)
        self.inherited_sum = parent.inherited_sum + _running_sum(scores)

    def last_scored(self) -> Thought | None:
        """Its own last thought that has a score: where a branch of it starts."""
        return next((t for t in reversed(self.thoughts) if t.score is not None), None)

    def scores(self) -> list[float]:
        """Scores of the whole sequence in order, inherited ones first."""
        thoughts = [t for trace, end in self._inherited() for t in trace.thoughts if t.position <= end]
        return [t.score for t in (*thoughts, *self.thoughts) if t.score is not None]

    def history(self, first: int) -> list[bytes]:
        """What a scorer keeps of its scored thoughts from number `first` (from 0) on, inherited ones
        included, in order."""
        parts: list[list[bytes]] = []
        trace: Trace | None = self
        end = self.scored
        while trace is not None and end > first:
            start = trace.inherited_scored
            parts.append(trace.projected[max(0, first - start) : end - start])
            trace, end = trace.parent, start
        return [row for part in reversed(parts) for row in part]

    def own_between(self, start: int, end: int) -> list[int]:
        """Its own tokens between two positions."""
        return self.tokens[start - self.branch_position : end - self.branch_position].tolist()

    def mean_confidence(self, start: int, end: int) -> float | None:
        """Over its own tokens between two positions, as `of_thought`; None where it has no confidences."""
        part = self.confidences[start - self.branch_position : end - self.branch_position]
        return of_thought(part) if part else None

    def merged_thoughts(self, shortest: int) -> list[tuple[int, int]]:
        """Its own thoughts as (start, end) positions, those of fewer than `shortest` tokens merged with the
        next; the last ones are left out as long as they are too short together."""
        merged, start = [], self.branch_position
        for thought in self.thoughts:
            if thought.position - start >= shortest:
                merged.append((start, thought.position))
                start = thought.position
        return merged

    def ancestors(self) -> Iterator[Trace]:
        """Parent, grandparent, … up to a root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def sequence(self) -> list[int]:
        """All generated tokens from the prompt on."""
        tokens: list[int] = []
        for trace, end in self._inherited():
            tokens.extend(trace.tokens[: end - trace.branch_position])
        tokens.extend(self.tokens)
        return tokens

    def path(self) -> list[tuple[int, int]]:
        """The nodes that its tokens lie in, root first, each with the position at which they leave it."""
        inherited = [(trace.number, end) for trace, end in self._inherited()]
        return [*inherited, (self.number, self.total_tokens)]

    def _inherited(self) -> list[tuple[Trace, int]]:
        """Its ancestors from the root on, each with the position at which its sequence leaves them."""
        path = pairwise([self, *self.ancestors()])
        return [(parent, child.branch_position) for child, parent in path][::-1]


class TreeView:
    """All traces of one search, indexed by state."""

    def __init__(self) -> None:
        self.traces: dict[int, Trace] = {}
        self.generated = 0  # tokens sampled over the whole tree
        self.thoughts_scored = 0
        self._by_state: dict[NodeState, dict[int, Trace]] = {state: {} for state in NodeState}

    def __getitem__(self, number: int) -> Trace:
        return self.traces[number]

    def __len__(self) -> int:
        return len(self.traces)

    def in_state(self, *states: NodeState) -> list[Trace]:
        """Traces in any of these states, by number."""
        found = [t for state in states for t in self._by_state[state].values()]
        found.sort(key=_NUMBER)
        return found

    def count(self, *states: NodeState) -> int:
        return sum(len(self._by_state[state]) for state in states)

    @property
    def counting(self) -> list[Trace]:
        """Traces that count towards the logical capacity, by number."""
        return self.in_state(*COUNTING)

    @property
    def capacity_count(self) -> int:
        """N: pending + live + held + ghost."""
        return self.count(*COUNTING)

    @property
    def finished(self) -> list[Trace]:
        """Finished traces, earliest first."""
        return sorted(self._by_state[NodeState.FINISHED].values(), key=lambda t: t.finish_order or 0)

    @property
    def roots(self) -> int:
        return sum(1 for t in self.traces.values() if t.parent is None)

    # ---- changes; only the search makes them

    def restore(self, trace: Trace) -> None:
        """Puts back a trace from a checkpoint; its sums of scores follow from the thoughts.

        Raises ValueError unless traces come in the order of their numbers.
        """
        if trace.number != len(self.traces) + 1:
            raise ValueError(f"node {trace.number} restored after {len(self.traces)} nodes")
        own = [t.score for t in trace.thoughts if t.score is not None]
        trace.own_scored, trace.own_sum = len(own), _running_sum(own)
        if trace.parent is not None:
            trace.inherit(trace.parent)
        self._add(trace)
        self.thoughts_scored += trace.own_scored

    def add_root(self) -> Trace:
        return self._add(Trace(number=len(self.traces) + 1, parent=None))

    def add_branch(self, parent: Trace) -> Trace:
        """A branch at the parent's last scored boundary; it inherits the thoughts up to there.

        Raises IllegalTransitionError when the parent is neither live nor held, or has no scored thought of
        its own.
        """
        at = parent.last_scored()
        if parent.state not in (NodeState.LIVE, NodeState.HELD) or at is None:
            raise IllegalTransitionError(
                f"node {parent.number} ({parent.state}) cannot be branched: "
                "a parent is live or held and has a scored thought of its own"
            )
        branch = Trace(number=len(self.traces) + 1, parent=parent, branch_position=at.position)
        branch.inherit(parent)
        return self._add(branch)

    def move(self, trace: Trace, to: NodeState) -> None:
        """One transition. Raises IllegalTransitionError when the state machine has no such edge."""
        if to not in NODE_TRANSITIONS[trace.state]:
            raise IllegalTransitionError(f"node {trace.number}: {trace.state} -> {to} is not allowed")
        del self._by_state[trace.state][trace.number]
        trace.state = to
        self._by_state[to][trace.number] = trace
        if to is NodeState.FINISHED:
            trace.finish_order = len(self._by_state[NodeState.FINISHED])
        elif to is NodeState.GHOST:
            trace.evictions += 1

    def append_tokens(self, trace: Trace, tokens: Sequence[int], confidences: Sequence[float] = ()) -> None:
        """confidences: one per token, where the policy needs them. Raises ValueError for another number."""
        trace.tokens.extend(tokens)
        self.generated += len(tokens)
        if confidences:
            trace.confidences.extend(confidences)
            if len(trace.confidences) != len(trace.tokens):
                raise ValueError(
                    f"node {trace.number}: {len(trace.confidences)} confidences, {len(trace.tokens)} tokens"
                )

    def set_score(self, trace: Trace, index: int, score: float, projected: bytes = b"") -> None:
        """Gives the trace's own thought number `index` (from 0) its score in [0, 1]. projected: what a scorer
        with a history keeps of it.

        Raises ValueError for anything else, for a second score, and for one that comes after that of a later
        thought: a branch may have inherited the thoughts up to there already.
        """
        thought = trace.thoughts[index]
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"node {trace.number}, thought {index}: score {score} is outside [0, 1]")
        if any(t.score is not None for t in trace.thoughts[index:]):
            raise ValueError(f"node {trace.number}, thought {index}: scored twice or out of order")
        trace.thoughts[index] = Thought(thought.position, score, thought.confidence, thought.text_end)
        trace.own_scored += 1
        trace.own_sum += score
        if projected:
            trace.projected.append(projected)
        self.thoughts_scored += 1

    def _add(self, trace: Trace) -> Trace:
        self.traces[trace.number] = trace
        self._by_state[trace.state][trace.number] = trace
        return trace
