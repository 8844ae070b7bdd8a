"""Self-consistency: sample N traces, take the answer that most of them give.

Self-Consistency Improves Chain of Thought Reasoning in Language Models (arXiv 2203.11171).
Symbols: N traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from decoder_worker.answers.votes import Candidate, Decision, majority
from decoder_worker.policies.base import Observation, Policy, Step
from decoder_worker.policies.independent import independent_step
from decoder_worker.policies.parameters import MOST_TRACES, Parameters, integer
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import TreeView


@dataclass(frozen=True, slots=True)
class SelfConsistencyParameters(Parameters):
    N: int = integer(
        "Traces, sampled independently.",
        symbol="N",
        source="arXiv 2203.11171, section 3 (40 samples); tiny: this project, as many as gambit's C",
        paper=40,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )


class SelfConsistency(Policy[NoState]):
    name = "self_consistency"
    summary = "N independent traces; the unweighted majority of their answers."
    source = "Self-Consistency Improves Chain of Thought Reasoning, arXiv 2203.11171"
    needs_scores = False
    parameters_type: ClassVar[type[Parameters]] = SelfConsistencyParameters
    state_type = NoState

    def __init__(self, parameters: SelfConsistencyParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.N

    def initial(self, seed: int) -> NoState:
        return NoState()

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        return independent_step(self.parameters.N, view, observation)

    def vote(self, state: NoState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        return majority(candidates)
