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
    """The engine runs nothing for this tree: no live trace, none pending, no add under way."""


Observation = Started | BoundariesScored | TracesFinished | Pressure | EngineIdle

# ---- actions: what the search is to do, in order


@dataclass(frozen=True, slots=True)
class SpawnRoot:
    """A new trace at the prompt."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A new trace at the parent's last scored boundary."""

    parent: int


@dataclass(frozen=True, slots=True)
class Prune:
    node: int


@dataclass(frozen=True, slots=True)
class Evict:
    """Take a live trace from the engine for memory: it becomes a ghost."""

    node: int


@dataclass(frozen=True, slots=True)
class Finish:
    """End the search; what is left is cancelled and the vote is held."""


Action = SpawnRoot | Branch | Prune | Evict | Finish

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

    def initial(self, seed: int) -> S:
        """State before the first observation."""
        ...

    def step(self, state: S, view: TreeView, observation: Observation) -> Step[S]:
        """What to do after an observation; the view is as it was before these actions."""
        ...

    def vote(self, candidates: Sequence[Candidate]) -> Decision:
        """The answer: held over the finished traces only."""
        ...

    def dump(self, state: S) -> str:
        """The state as JSON."""
        return state_module.dump(state)

    def load(self, text: str) -> S:
        """The inverse of dump. Raises ValueError or TypeError for anything else."""
        loaded: S = state_module.load(self.state_type, text)
        return loaded
