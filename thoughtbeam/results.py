"""What calls return. Plain frozen data: times are aware UTC datetimes, durations are seconds."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from thoughtbeam.errors import FieldViolation

ParameterValue = bool | int | float | str | None


class TreeState(enum.StrEnum):
    """State of a search."""

    UNSPECIFIED = "unspecified"  # a state that this client does not know
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # the deadline passed before it ran


class WorkerState(enum.StrEnum):
    """State of a decoder worker."""

    UNSPECIFIED = "unspecified"  # a state that this client does not know
    SERVING = "serving"
    DRAINING = "draining"  # takes no new searches: it is about to stop


class NodeState(enum.StrEnum):
    """Logical state of a trace."""

    UNSPECIFIED = "unspecified"  # a state that this client does not know
    PENDING = "pending"  # waits for a slot of the engine
    LIVE = "live"  # in a slot
    HELD = "held"  # stopped at a boundary by its policy
    GHOST = "ghost"  # evicted from the engine for memory; still counts
    FINISHED = "finished"
    PRUNED = "pruned"
    CANCELLED = "cancelled"


# ---- counters


@dataclass(frozen=True, slots=True)
class TreeCounts:
    """nodes = roots + branches; once the search has ended also finished + pruned + cancelled.

    rounds: tournaments held. thoughts: boundaries passed, inherited ones once. evictions: times a trace was
    taken from the engine for memory.
    """

    nodes: int = 0
    roots: int = 0
    branches: int = 0
    pending: int = 0
    live: int = 0
    held: int = 0
    ghost: int = 0
    finished: int = 0
    pruned: int = 0
    cancelled: int = 0
    rounds: int = 0
    thoughts: int = 0
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens. generated: sampled by the engine. recomputed: prefilled again for branches and resumed traces,
    beyond what the KV cache held."""

    prompt: int = 0
    generated: int = 0
    recomputed: int = 0


# ---- the answer


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer that won the vote.

    weight: summed weight of the traces that agree. share: of all weights, in [0, 1]. node: the trace that
    stands for it. final_text: that trace's text after its thinking.
    """

    text: str
    weight: float
    share: float
    node: int
    final_text: str


@dataclass(frozen=True, slots=True)
class Vote:
    """One group of equal answers: its summed weight and its traces, heaviest first."""

    answer: str
    weight: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a search ended.

    answer: None when no finished trace gave one. votes: all groups of equal answers, best first. ended_by:
    the budget that ended it (`deadline`, `tokens`), or "". degraded: scores were missing, so that the vote
    fell back to an unscored one. elapsed: seconds from acceptance to the end; queued: of them, waiting for
    a worker. abridged: texts were cut or votes left out, which happens only to the result inside a Tree;
    `Client.result` gives the whole one. scorer: kind of what scored the thoughts (`mlp`, `sequence`,
    `process_reward`, `confidence`), "" where the policy needs no scores. scorer_mismatch: what differs, where
    the scorer was trained for another model or boundary rule and was used all the same; else "".
    """

    tree_id: str
    state: TreeState
    answer: Answer | None
    votes: tuple[Vote, ...]
    counts: TreeCounts
    usage: TokenUsage
    ended_by: str
    degraded: bool
    elapsed: float
    queued: float
    policy: str
    abridged: bool = False
    scorer: str = ""
    scorer_mismatch: str = ""

    @property
    def text(self) -> str | None:
        """The answer itself."""
        return self.answer.text if self.answer else None


# ---- the tree


@dataclass(frozen=True, slots=True)
class Node:
    """One trace. parent: None for a root. branch_position: generated tokens inherited from the parent, up
    to and including the boundary. mean_score: in [0, 1]; None without a scored thought. thoughts: inherited
    ones included. unique_tokens: its own; total_tokens: generated tokens of the whole sequence.
    finish_reason: `stop` or `length`, "" until finished. answer: "" for none. winning: on the path to the
    trace that stands for the answer.
    """

    number: int
    state: NodeState
    parent: int | None
    branch_position: int
    mean_score: float | None
    thoughts: int
    unique_tokens: int
    total_tokens: int
    finish_reason: str
    answer: str
    winning: bool


@dataclass(frozen=True, slots=True)
class Thought:
    """The part of a trace between two boundaries.

    position: generated tokens of the trace up to and including the boundary that ends it. text: up to and
    including that boundary. score, confidence: None for not scored. node: the trace that passed the boundary,
    an ancestor for an inherited thought.
    """

    position: int
    text: str
    score: float | None
    confidence: float | None
    node: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace with what it wrote. thoughts: earliest first; text: all of it, or without what was inherited
    if only its own was asked for; remainder: what follows the last boundary.
    """

    node: Node
    thoughts: tuple[Thought, ...]
    text: str
    remainder: str


@dataclass(frozen=True, slots=True)
class TreeError:
    """Why a search failed or expired. code: name of the gRPC status, for example `FAILED_PRECONDITION`."""

    code: str
    reason: str
    message: str
    violations: tuple[FieldViolation, ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """One search. `Client.tree` fills `nodes`, by number; all other methods leave it empty.

    parameters: all in force; empty until a worker has taken the tree. worker: the one that runs it or ran it
    last; epoch: how often it was assigned. result: once it has succeeded or was cancelled. error: once it has
    failed or expired. question: the last user message, cut short. last_event_id: for `Client.watch`, which
    goes on from there; only `Client.tree` fills it.
    """

    id: str
    state: TreeState
    model: str
    policy: str
    profile: str
    parameters: Mapping[str, ParameterValue]
    created: datetime | None
    started: datetime | None
    ended: datetime | None
    deadline: datetime | None
    counts: TreeCounts
    usage: TokenUsage
    worker: str
    epoch: int
    result: Result | None
    error: TreeError | None
    question: str
    nodes: tuple[Node, ...] = ()
    last_event_id: str = ""


# ---- progress


@dataclass(frozen=True, slots=True)
class TreeEvent:
    """One entry of a search's event feed. event_id: its position there."""

    event_id: str
    time: datetime | None


@dataclass(frozen=True, slots=True)
class TreeTransition(TreeEvent):
    """The search changed its state."""

    state: TreeState
    reason: str


@dataclass(frozen=True, slots=True)
class NodeTransition(TreeEvent):
    """A trace changed its state. before: None when it was created. parent: of a new branch."""

    node: int
    before: NodeState | None
    after: NodeState
    parent: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Round(TreeEvent):
    """A tournament. capacity_count: pending + live + held + ghost when it was held. kv_use: in [0, 1].
    branched: the parents."""

    number: int
    thoughts: int
    capacity_count: int
    live: int
    ghosts: int
    kv_use: float
    pruned: tuple[int, ...]
    branched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Progress(TreeEvent):
    """A sample of the running counters, at most a few a second."""

    counts: TreeCounts
    usage: TokenUsage


# ---- policies


@dataclass(frozen=True, slots=True)
class PolicyParameter:
    """One parameter of a policy. symbol: the paper's, or "". type: `int`, `float`, `bool` or `choice`.
    defaults: by profile. minimum, maximum: None for no limit."""

    name: str
    symbol: str
    description: str
    source: str
    type: str
    defaults: Mapping[str, ParameterValue]
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """A search method and what can be set on it. needs_scores: it cannot run without a scorer."""

    name: str
    summary: str
    source: str
    parameters: tuple[PolicyParameter, ...]
    needs_scores: bool


# ---- operations


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the service is. queued_trees: searches that wait for a worker, of at most max_queued_trees;
    oldest_wait: seconds that the first of them has waited, None: none waits. workers, slots, free_slots,
    waiting_traces (for a slot): of all workers but draining ones. kv_use: share of the KV blocks in use, in
    [0, 1], of the fullest worker.
    """

    queued_trees: int
    max_queued_trees: int
    oldest_wait: float | None
    running_trees: int
    workers: int
    slots: int
    free_slots: int
    waiting_traces: int
    kv_use: float


@dataclass(frozen=True, slots=True)
class Worker:
    """A decoder worker as it last described itself.

    slots: traces that its engine decodes at once. waiting_traces: for a slot. trees: searches that it runs.
    kv_use: share of its KV blocks in use, in [0, 1]. max_context: longest sequence, prompt included, in
    tokens. max_capacity: largest logical capacity count that it takes. scorer: kind of the scorer behind it,
    "" for none.
    """

    id: str
    state: WorkerState
    model: str
    slots: int
    free_slots: int
    waiting_traces: int
    trees: int
    kv_use: float
    max_context: int
    max_capacity: int
    scorer: str
    last_seen: datetime | None
