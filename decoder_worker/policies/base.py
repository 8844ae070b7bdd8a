"""The policy seam. A policy decides what a search does; it never acts itself.

`step(state, view, observation)` is pure: no I/O, no clock, no randomness but a seeded generator in its state,
so that the same history always gives the same actions and a search can be resumed from its stored state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from decoder_worker.answers.votes import Candidate, Decision
from decoder_worker.policies import state as state_module
from decoder_worker.policies.parameters import Parameters
from decoder_worker.tree_view import TreeView

# ---- observations: what has happened; the Tree View already shows it


@dataclass(frozen=True, slots=True)
class Started:
    """The search begins: nothing exists yet."""


@dataclass(frozen=True, slots=True)
class BoundariesScored:
    """Scores arrived: (node, score) in the order in which the boundaries were passed."""

    scored: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TracesFinished:
    """Traces reached an end token or their length limit, in order."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pressure:
    """The engine's KV use passed the high-water mark and this tree holds more than its share.

    blocks: how many KV blocks to give back. held: blocks that each live trace would free, by node.
    """

    blocks: int
    held: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class EngineIdle:
    """The engine runs nothing for this tree: no live trace, none pending, no add under way; and no score and
    no embedding of a held trace is on its way. Held and ghost traces may exist."""


@dataclass(frozen=True, slots=True)
class StepsPassed:
    """`check_every` engine steps in which the tree had live traces have passed since the last one of these.

    steps: how many exactly, at least that; a live trace has generated no more tokens since then.
    kv_use: share of the engine's KV blocks in use, in [0, 1].
    """

    steps: int
    kv_use: float = 0.0


@dataclass(frozen=True, slots=True)
class ThoughtsEmbedded:
    """Vectors arrived: (node, index of the merged thought), as in `Trace.embeddings`."""

    embedded: tuple[tuple[int, int], ...]


Observation = (
    Started | BoundariesScored | TracesFinished | Pressure | EngineIdle | StepsPassed | ThoughtsEmbedded
)

# ---- actions: what the search is to do, in order


@dataclass(frozen=True, slots=True)
class SpawnRoot:
    """A new trace at the prompt."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A new trace at the last scored boundary of a live or held parent."""

    parent: int


@dataclass(frozen=True, slots=True)
class Prune:
    node: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Take a live trace from the engine for memory: it becomes a ghost."""

    node: int


@dataclass(frozen=True, slots=True)
class Resume:
    """A held trace queues for a slot and goes on. Its branches of the same step come before."""

    node: int


@dataclass(frozen=True, slots=True)
class Revive:
    """A ghost queues for a slot and goes on."""

    node: int


@dataclass(frozen=True, slots=True)
class Finish:
    """End the search; what is left is cancelled and the vote is held."""


Action = SpawnRoot | Branch | Prune | Evict | Resume | Revive | Finish

# ---- the seam

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """Outcome of one policy step. tournament: whether these actions are a round to record."""

    state: S
    actions: tuple[Action, ...] = ()
    tournament: bool = False


class Policy(Protocol[S]):
    """One search method, made with its parameters. Policies derive from it for what most of them share.

    name: as in a request. summary: one line. source: paper. needs_scores: whether boundaries are sent to the
    scorer. parameters_type, parameters: the frozen dataclass of its parameters (see parameters.py).
    state_type: that of its state, also a frozen dataclass (see state.py).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    source: ClassVar[str]
    needs_scores: ClassVar[bool]
    parameters_type: ClassVar[type[Parameters]]
    state_type: ClassVar[type[Any]]
    parameters: Any

    def __init__(self, parameters: Any) -> None: ...

    @property
    def capacity(self) -> int:
        """Largest logical capacity count that it will reach."""
        ...

    @property
    def high_water(self) -> float:
        """KV use, in (0, 1], above which it wants to be told of pressure; 1: never."""
        return 1.0

    @property
    def child_temperature(self) -> float | None:
        """Sampling temperature of branches; None: that of the roots."""
        return None

    @property
    def check_every(self) -> int:
        """Engine steps between two `StepsPassed`; 0: none."""
        return 0

    @property
    def holds_at_boundaries(self) -> bool:
        """Whether every trace is stopped at its next boundary and becomes held. Its row is scored as ever,
        and `EngineIdle` follows when all are held and scored."""
        return False

    @property
    def needs_confidence(self) -> bool:
        """Whether the engine is to give one confidence per token, for `Trace.confidences`."""
        return False

    @property
    def needs_embeddings(self) -> bool:
        """Whether merged thoughts of live traces are to be embedded, for `Trace.embeddings`. Which ones:
        `Trace.merged_thoughts(policy.shortest_embedded)`, from index `policy.first_embedded` on."""
        return False

    @property
    def shortest_embedded(self) -> int:
        """Tokens below which a thought is embedded together with the next."""
        return 1

    @property
    def first_embedded(self) -> int:
        """Index (from 0) of the first merged thought whose vector it looks at."""
        return 0

    def initial(self, seed: int) -> S:
        """State before the first observation."""
        ...

    def step(self, state: S, view: TreeView, observation: Observation) -> Step[S]:
        """What to do after an observation; the view is as it was before these actions."""
        ...

    def vote(self, state: S, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        """The answer: held over the finished traces only. State and view are those of the end."""
        ...

    def dump(self, state: S) -> str:
        """The state as JSON."""
        return state_module.dump(state)

    def load(self, text: str) -> S:
        """The inverse of dump. Raises ValueError or TypeError for anything else."""
        loaded: S = state_module.load(self.state_type, text)
        return loaded
