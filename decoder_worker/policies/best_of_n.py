"""Best of N: sample N traces, take the answer of the one that the scorer likes best.

Training Verifiers to Solve Math Word Problems (arXiv 2110.14168). Symbols: N traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from decoder_worker.answers.votes import Candidate, Decision, best
from decoder_worker.policies.base import Observation, Policy, Step
from decoder_worker.policies.independent import independent_step
from decoder_worker.policies.parameters import MOST_TRACES, OURS, Parameters, choice, integer
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import TreeView


@dataclass(frozen=True, slots=True)
class BestOfNParameters(Parameters):
    N: int = integer(
        "Traces, sampled independently.",
        symbol="N",
        source="arXiv 2110.14168, section 4.2 (100 samples); tiny: this project, as many as gambit's C",
        paper=100,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    by: Literal["mean", "last", "min"] = choice(
        "Score of a trace, out of its thoughts' scores.",
        source=OURS,
        paper="mean",
        tiny="mean",
        choices=("mean", "last", "min"),
    )


class BestOfN(Policy[NoState]):
    name = "best_of_n"
    summary = "N independent traces; the answer of the one with the highest score."
    source = "Training Verifiers to Solve Math Word Problems, arXiv 2110.14168"
    needs_scores = True
    parameters_type: ClassVar[type[Parameters]] = BestOfNParameters
    state_type = NoState

    def __init__(self, parameters: BestOfNParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.N

    def initial(self, seed: int) -> NoState:
        return NoState()

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        return independent_step(self.parameters.N, view, observation)

    def vote(self, state: NoState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        return best(candidates, self.parameters.by)
