"""REBASE: a tree search that gives each frontier trace children in proportion to its reward.

Inference Scaling Laws (REBASE, arXiv 2408.00724). The paper's symbols:

W   width: traces that go on or have finished     r_i  reward of trace i at its boundary
τ   temperature of the rewards                    n_i  children of trace i

Thought by thought: every trace is held at its boundary and scored; when all are, the frontier, sorted by
reward, shares out what is left of W. The first child of a held trace is itself, resumed; the others are
branches of it, which share its KV. A finished trace has used up one of W.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, exp, fsum
from typing import ClassVar, Literal

from decoder_worker.answers.votes import Candidate, Decision, weighted
from decoder_worker.policies.base import (
    Action,
    Branch,
    EngineIdle,
    Finish,
    Observation,
    Policy,
    Prune,
    Resume,
    SpawnRoot,
    Started,
    Step,
)
from decoder_worker.policies.parameters import MOST_TRACES, OURS, Parameters, choice, integer, real
from decoder_worker.policies.ranking import filled, in_order, reward
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState

PAPER = "arXiv 2408.00724"
# What W · share may be above a whole number by rounding alone.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class RebaseParameters(Parameters):
    W: int = integer(
        "Width: traces that go on or have finished.",
        symbol="W",
        source=f"{PAPER}; defaults: this project, tiny as many as gambit's C",
        paper=64,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    tau: float = real(
        "Temperature of the rewards: the lower, the more children go to the best.",
        symbol="τ",
        source=f"{PAPER}; tiny: this project, whose scorer's rewards lie closer together",
        paper=0.2,
        tiny=0.1,
        minimum=0.001,
        maximum=100.0,
    )
    reward: Literal["last", "min", "mean", "product"] = choice(
        "Reward of a trace at its boundary, out of its thoughts' scores.",
        source=f"{PAPER}: the score of the last step; tiny: this project",
        paper="last",
        tiny="mean",
        choices=("last", "min", "mean", "product"),
    )
    vote: Literal["last", "min", "mean", "product"] = choice(
        "Weight of a finished trace in the vote, out of its thoughts' scores.",
        source=f"{PAPER}, weighted majority; which of them: this project",
        paper="last",
        tiny="mean",
        choices=("last", "min", "mean", "product"),
    )
    depth: int = integer(
        "Thoughts after which a trace that has not finished is pruned.",
        source=OURS,
        paper=1000,
        tiny=60,
        minimum=1,
        maximum=1_000_000,
    )


class Rebase(Policy[NoState]):
    """A trace whose last thought has no score has the mean reward of the others, and goes on at most once,
    because a branch would start before the place where it stands (this project's choices)."""

    name = "rebase"
    summary = "Tree search of width W: all wait at each boundary, then rewards decide who goes on how often."
    source = "Inference Scaling Laws (REBASE), arXiv 2408.00724"
    needs_scores = True
    parameters_type: ClassVar[type[Parameters]] = RebaseParameters
    state_type = NoState

    def __init__(self, parameters: RebaseParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.W

    @property
    def holds_at_boundaries(self) -> bool:
        return True

    def initial(self, seed: int) -> NoState:
        return NoState()

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        match observation:
            case Started():
                return Step(state, (SpawnRoot(),) * self.parameters.W)
            case EngineIdle():  # all that go on are held and scored
                return Step(state, self._expand(view), tournament=True)
            case _:
                return Step(state)

    def vote(self, state: NoState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        return weighted(candidates, self.parameters.vote)

    def _expand(self, view: TreeView) -> tuple[Action, ...]:
        p = self.parameters
        held = view.in_state(NodeState.HELD)
        expandable = [t for t in held if t.thought_count < p.depth]
        r = filled({t.number: reward(t, p.reward) if _stands_at_a_score(t) else None for t in expandable})
        frontier = in_order(expandable, r)
        children = self._share_out(p.W - view.count(NodeState.FINISHED), frontier, r)
        pruned = [t for t in held if not children.get(t.number)]
        going: list[Action] = []
        for trace in frontier:
            n = children[trace.number]
            if n:
                going += [*(Branch(trace.number),) * (n - 1), Resume(trace.number)]
        return (*(Prune(t.number) for t in pruned), *going, *(() if going else (Finish(),)))

    def _share_out(self, width: int, frontier: Sequence[Trace], r: Mapping[int, float]) -> dict[int, int]:
        """n_i = ⌈W · e^(r_i/τ) / Σ_j e^(r_j/τ)⌉, by node; W and Σ without what has been served before i."""
        best = max(r.values(), default=0.0)
        weights = [exp((r[trace.number] - best) / self.parameters.tau) for trace in frontier]
        children = {}
        for i, trace in enumerate(frontier):
            rest = fsum(weights[i:])
            n = ceil(width * weights[i] / rest - ROUNDING) if rest else width
            n = min(n, width if _stands_at_a_score(trace) else 1)
            children[trace.number] = n
            width -= n
        return children


def _stands_at_a_score(trace: Trace) -> bool:
    return bool(trace.thoughts) and trace.thoughts[-1].score is not None
