"""One trace, one answer: plain decoding, the baseline of every paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from decoder_worker.answers.votes import Candidate, Decision, majority
from decoder_worker.policies.base import Observation, Policy, Step
from decoder_worker.policies.independent import independent_step
from decoder_worker.policies.parameters import Parameters
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import TreeView


class Vanilla(Policy[NoState]):
    name = "vanilla"
    summary = "One trace; its answer is the answer."
    source = "plain decoding"
    needs_scores = False
    parameters_type: ClassVar[type[Parameters]] = Parameters
    state_type = NoState

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return 1

    def initial(self, seed: int) -> NoState:
        return NoState()

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        return independent_step(1, view, observation)

    def vote(self, state: NoState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        return majority(candidates)
