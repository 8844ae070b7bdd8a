"""The Tree View's words: states of trees and nodes, the transitions allowed, and what is stored of each.

Plain data, no I/O. The Lua scripts check the same transitions where they are applied; a test compares both.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


class NodeState(enum.StrEnum):
    """Logical state of a trace."""

    PENDING = "pending"  # waits for a slot of the engine
    LIVE = "live"  # in a slot
    HELD = "held"  # stopped at a boundary by its policy
    GHOST = "ghost"  # evicted for memory; decodes nothing, still counts
    FINISHED = "finished"
    PRUNED = "pruned"
    CANCELLED = "cancelled"


# States that count towards the logical capacity N; the others are final.
COUNTING = frozenset({NodeState.PENDING, NodeState.LIVE, NodeState.HELD, NodeState.GHOST})

_GONE = frozenset({NodeState.PRUNED, NodeState.CANCELLED})

NODE_TRANSITIONS: Mapping[NodeState, frozenset[NodeState]] = MappingProxyType(
    {
        NodeState.PENDING: frozenset({NodeState.LIVE}) | _GONE,
        # back to pending only with a new epoch
        NodeState.LIVE: frozenset({NodeState.PENDING, NodeState.HELD, NodeState.GHOST, NodeState.FINISHED})
        | _GONE,
        NodeState.HELD: frozenset({NodeState.PENDING}) | _GONE,
        NodeState.GHOST: frozenset({NodeState.PENDING}) | _GONE,
        NodeState.FINISHED: frozenset(),
        NodeState.PRUNED: frozenset(),
        NodeState.CANCELLED: frozenset(),
    }
)


class TreeState(enum.StrEnum):
    """State of a search."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # the deadline passed before it ran

    @property
    def terminal(self) -> bool:
        return self not in (TreeState.QUEUED, TreeState.RUNNING)


TREE_TRANSITIONS: Mapping[TreeState, frozenset[TreeState]] = MappingProxyType(
    {
        # failed only after it has run
        TreeState.QUEUED: frozenset(
            {TreeState.RUNNING, TreeState.FAILED, TreeState.CANCELLED, TreeState.EXPIRED}
        ),
        # back to queued when its worker died or handed it back
        TreeState.RUNNING: frozenset(
            {TreeState.QUEUED, TreeState.SUCCEEDED, TreeState.FAILED, TreeState.CANCELLED}
        ),
        TreeState.SUCCEEDED: frozenset(),
        TreeState.FAILED: frozenset(),
        TreeState.CANCELLED: frozenset(),
        TreeState.EXPIRED: frozenset(),
    }
)


@dataclass(frozen=True, slots=True)
class Thought:
    """One boundary of a trace.

    position: tokens of the whole sequence up to and including the boundary, prompt not counted.
    score: in [0, 1], or None while unscored. confidence: None where it was not asked for. text_end: bytes
    (UTF-8) of the node's own text up to and including the boundary.
    """

    position: int
    score: float | None = None
    confidence: float | None = None
    text_end: int = 0


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What one batch changes on one node: a walk through states and what was added at boundaries.

    path: the states it walks through, in order. A new node's path starts with PENDING and `created`
    is set; else the walk starts from the state that the store holds, which must be `before`.
    fields: hash fields to set, already as strings. mean_score: None while unscored.
    tokens, text, thoughts, confidences, history: appended to what is stored; confidences: one per token, or
    none; history: what a scorer keeps of those of the thoughts that have a score, or none.
    """

    node: int
    before: NodeState | None
    path: tuple[NodeState, ...] = ()
    reason: str = ""
    parent: int | None = None
    branch_position: int = 0
    mean_score: float | None = None
    fields: Mapping[str, str] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    text: str = ""
    thoughts: tuple[Thought, ...] = ()
    confidences: tuple[float, ...] = ()
    history: bytes = b""

    @property
    def created(self) -> bool:
        return self.before is None


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One tournament, as kept in the `rounds` stream."""

    number: int
    thoughts: int
    capacity_count: int
    live: int
    ghosts: int
    kv_use: float
    pruned: tuple[int, ...]
    branched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as it is stored. finish_order: 1 for the earliest finished; answer None: none."""

    node: int
    state: NodeState
    parent: int | None
    branch_position: int
    mean_score: float | None
    thoughts: int
    unique_tokens: int
    total_tokens: int
    finish_reason: str
    finish_order: int | None
    answer: str | None
    winning: bool
    evictions: int


@dataclass(frozen=True, slots=True)
class NodeContent:
    """What a trace itself added to its parent's, as checkpointed at its boundaries.

    confidences: one per token; none where its policy did not ask for them. history: what a scorer keeps of
    its scored thoughts, one after the other; none where the scorer keeps no history.
    """

    tokens: tuple[int, ...]
    text: str
    thoughts: tuple[Thought, ...]
    confidences: tuple[float, ...] = ()
    history: bytes = b""


@dataclass(frozen=True, slots=True)
class VoteRecord:
    """One group of equal answers, its summed weight and the traces in it."""

    answer: str
    weight: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a search ended. answer None: no finished trace gave one (NO_ANSWER); then node is None too.

    votes: all groups, best first. ended_by: the budget that ended it, or "". degraded: scores were missing.
    abridged: texts were cut or votes left out (see outcomes.py).
    """

    answer: str | None
    node: int | None = None
    weight: float = 0.0
    share: float = 0.0
    final_text: str = ""
    votes: tuple[VoteRecord, ...] = ()
    ended_by: str = ""
    degraded: bool = False
    abridged: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a tree failed or expired. code: a google.rpc.Code; violations: (field, description)."""

    code: int
    reason: str
    message: str
    violations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NewTree:
    """A tree to create. search: the Search message as JSON; digest: of that search, to tell a retry from a
    reused id; question: for people, cut by the caller; max_events: that its feed keeps, the newest. Times are
    seconds since the epoch."""

    tree_id: str
    search: str
    digest: str
    model: str
    policy: str
    profile: str
    question: str
    deadline: float
    max_events: int = 100_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything that one write of a running tree changes; applied whole or not at all.

    fields: meta hash fields to set, as strings (`generated`, `degraded`, …). policy_state: JSON, when it has
    changed. rounds: in the order in which they were held. progress: append a `progress` event, the counters.
    """

    nodes: tuple[NodeChange, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    policy_state: str | None = None
    rounds: tuple[RoundRecord, ...] = ()
    progress: bool = False


@dataclass(frozen=True, slots=True)
class TreeRecord:
    """A tree as it is stored. Times are seconds since the epoch; None: not yet.

    search: the Search message as JSON; "" when it was read from the list of trees. counts: nodes, roots,
    branches, one per node state, rounds, thoughts, evictions. usage: prompt, generated, recomputed (tokens).
    steps: of the engine since the policy last heard of them. parameters: all in force, as JSON; "" until a
    worker has taken it. degraded: scores are missing, as its owner says while it runs and the outcome in the
    end. outcome: at most a KiB of it, see `outcome` in reads.py. place: where it stands in the list of trees;
    "" when it was not read from there. scorer: kind of what scores its thoughts, "" where nothing does.
    scorer_id: which one of that kind made the scores and the history that are stored. scorer_mismatch: what
    differs from what it was trained for, where it is used all the same.
    """

    tree_id: str
    state: TreeState
    search: str
    digest: str
    model: str
    policy: str
    profile: str
    parameters: str
    question: str
    epoch: int
    worker: str
    created: float
    deadline: float
    started: float | None
    ended: float | None
    cancel_requested: bool
    degraded: bool
    counts: Mapping[str, int]
    usage: Mapping[str, int]
    outcome: Outcome | None
    failure: Failure | None
    steps: int = 0
    place: str = ""
    scorer: str = ""
    scorer_id: str = ""
    scorer_mismatch: str = ""
