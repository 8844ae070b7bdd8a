"""STEP: when memory runs out, the trace whose hidden states look worst is pruned.

Hidden States as Early Signals (STEP, arXiv 2601.09093). Symbols: N traces, s̄ mean score of a trace;
r, gambit's word, KV high-water mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from decoder_worker.answers.votes import Candidate, Decision, weighted
from decoder_worker.policies.base import Observation, Policy, Pressure, Prune, Step
from decoder_worker.policies.independent import independent_step
from decoder_worker.policies.parameters import MOST_TRACES, Parameters, choice, integer, real
from decoder_worker.policies.ranking import lowest_until_freed
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import TreeView


@dataclass(frozen=True, slots=True)
class StepParameters(Parameters):
    N: int = integer(
        "Traces, sampled independently.",
        symbol="N",
        source="arXiv 2601.09093; defaults: this project, tiny as many as gambit's C",
        paper=64,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    high_water: float = real(
        "Share of the engine's KV blocks above which the lowest live traces are pruned.",
        symbol="r",
        source="this project, as gambit's; the paper prunes when the memory is full",
        paper=0.9,
        tiny=0.9,
        minimum=0.05,
        maximum=0.99,
    )
    unscored: Literal["mean", "zero"] = choice(
        "Where a trace without a score ranks: at the mean of the scored, or at 0, which kills newcomers.",
        source="this project: mean; arXiv 2601.09093: zero",
        paper="mean",
        tiny="mean",
        choices=("mean", "zero"),
    )


class StepPolicy(Policy[NoState]):
    """The last live trace is never pruned: memory that it alone fills is the engine's affair."""

    name = "step"
    summary = "N independent traces; under memory pressure the lowest-scored are pruned; score-weighted vote."
    source = "Hidden States as Early Signals (STEP), arXiv 2601.09093"
    needs_scores = True
    parameters_type: ClassVar[type[Parameters]] = StepParameters
    state_type = NoState

    def __init__(self, parameters: StepParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.N

    @property
    def high_water(self) -> float:
        return self.parameters.high_water

    def initial(self, seed: int) -> NoState:
        return NoState()

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        if isinstance(observation, Pressure):
            pruned = lowest_until_freed(view, observation, self.parameters.unscored)
            return Step(state, tuple(Prune(trace.number) for trace in pruned))
        return independent_step(self.parameters.N, view, observation)

    def vote(self, state: NoState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        return weighted(candidates)
