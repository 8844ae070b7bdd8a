"""SART: more branches than needed, the hopeless pruned and the slow not waited for.

Thinking Short and Right Over Thinking Long (SART, arXiv 2505.13326). The paper's symbols:

N   branches of a request             M   completions that stop the request
α   threshold of the first phase      β   most prunings in the first phase
T   engine steps between checks       α′  threshold of the second phase

In the first phase (explore) few branches are pruned, by the fixed threshold α; the first completion begins
the second (exploit), with α′ = its reward. The paper's B, the branches that decode at once, are the worker's
slots, and its order of service is theirs (slots.py).

This project's choices: a branch completes when it finishes, not at the next check, so that the M-th one ends
the request at once; where fewer may be pruned than are too low, the lowest are; a branch whose reward has not
come yet is not pruned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from decoder_worker.answers.votes import Candidate, Decision, best
from decoder_worker.policies.base import (
    Action,
    EngineIdle,
    Finish,
    Observation,
    Policy,
    Prune,
    SpawnRoot,
    Started,
    Step,
    StepsPassed,
    TracesFinished,
)
from decoder_worker.policies.parameters import (
    MOST_TRACES,
    Conflict,
    Limits,
    Parameters,
    choice,
    integer,
    real,
)
from decoder_worker.policies.ranking import ranked, reward
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState

PAPER = "arXiv 2505.13326"
# By which the mean of equal scores may miss them.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SartNoPruneParameters(Parameters):
    N: int = integer(
        "Branches of a request, sampled independently.",
        symbol="N",
        source=f"{PAPER}; defaults: this project, tiny as many as gambit's C",
        paper=8,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    M: int | None = integer(
        "Completed branches that end the request; null: half of N, at least 1.",
        symbol="M",
        source=PAPER,
        paper=None,
        tiny=None,
        minimum=1,
        maximum=MOST_TRACES,
    )
    reward: Literal["last", "min", "mean", "product"] = choice(
        "Reward of a branch, out of its thoughts' scores: last suits a process reward model, mean a scorer "
        "of hidden states.",
        source="this project; the paper's process reward model gives one reward per branch",
        paper="last",
        tiny="mean",
        choices=("last", "min", "mean", "product"),
    )

    @property
    def completions(self) -> int:
        """M, as a number."""
        return max(1, self.N // 2) if self.M is None else self.M

    def conflicts(self, limits: Limits) -> Iterable[Conflict]:
        if self.completions > self.N:
            yield Conflict(
                "M",
                frozenset({"M", "N"}),
                f"must be a whole number from 1 to {self.N} (N) or null, not {self.M}",
            )


@dataclass(frozen=True, slots=True)
class SartParameters(SartNoPruneParameters):
    alpha: float = real(
        "Reward below which a branch is pruned until the first branch has completed.",
        symbol="α",
        source=f"{PAPER}; tiny: this project, since right traces of hard questions score less than 0.5",
        paper=0.5,
        tiny=0.3,
        minimum=0.0,
        maximum=1.0,
    )
    beta: int | None = integer(
        "Most branches that are pruned until the first branch has completed; null: half of N.",
        symbol="β",
        source=PAPER,
        paper=None,
        tiny=None,
        minimum=0,
        maximum=MOST_TRACES,
    )
    interval: int = integer(
        "Engine steps between two checks.",
        symbol="T",
        source=f"{PAPER}; tiny: this project, about one thought",
        paper=400,
        tiny=40,
        minimum=1,
        maximum=1_000_000,
        cap="max_context",
    )

    @property
    def most_pruned(self) -> int:
        """β, as a number."""
        return self.N // 2 if self.beta is None else self.beta

    def conflicts(self, limits: Limits) -> Iterable[Conflict]:
        yield from SartNoPruneParameters.conflicts(self, limits)
        if self.most_pruned >= self.N:
            yield Conflict(
                "beta",
                frozenset({"beta", "N"}),
                f"must be a whole number from 0 to {self.N - 1} (N - 1) or null, not {self.beta}",
            )


@dataclass(frozen=True, slots=True)
class SartState:
    """earliest: the branches that completed in the first engine step that completed any. With them the second
    phase begins, at the next check."""

    earliest: tuple[int, ...] = ()


class SartNoPrune(Policy[SartState]):
    name = "sart_no_prune"
    summary = "N branches; the first M that complete end the request; the answer of the highest reward."
    source = "Thinking Short and Right Over Thinking Long (SART, without pruning), arXiv 2505.13326"
    needs_scores = True
    parameters_type: ClassVar[type[Parameters]] = SartNoPruneParameters
    state_type = SartState
    parameters: SartNoPruneParameters

    def __init__(self, parameters: SartNoPruneParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.N

    def initial(self, seed: int) -> SartState:
        return SartState()

    def step(self, state: SartState, view: TreeView, observation: Observation) -> Step[SartState]:
        match observation:
            case Started():
                return Step(state, (SpawnRoot(),) * self.parameters.N)
            case TracesFinished(nodes=nodes):
                state = state if state.earliest else SartState(earliest=nodes)
                return Step(state, (Finish(),) if self._over(view) else ())
            case EngineIdle():
                return Step(state, (Finish(),))
            case _:
                return Step(state)

    def vote(self, state: SartState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        """The answer of the completed branch with the highest reward."""
        return best(candidates, self.parameters.reward)

    def _over(self, view: TreeView, more_pruned: int = 0) -> bool:
        """Whether completed >= M, or completed + pruned = N."""
        completed = view.count(NodeState.FINISHED)
        pruned = view.count(NodeState.PRUNED) + more_pruned
        return completed >= self.parameters.completions or completed + pruned >= self.parameters.N


class Sart(SartNoPrune):
    name = "sart"
    summary = "N branches; those with too low a reward are pruned, the first M that complete end the request."
    source = "Thinking Short and Right Over Thinking Long (SART), arXiv 2505.13326"
    parameters_type: ClassVar[type[Parameters]] = SartParameters
    parameters: SartParameters

    @property
    def check_every(self) -> int:
        return self.parameters.interval

    def step(self, state: SartState, view: TreeView, observation: Observation) -> Step[SartState]:
        if isinstance(observation, StepsPassed):
            return self._check(state, view)
        return SartNoPrune.step(self, state, view, observation)

    def _check(self, state: SartState, view: TreeView) -> Step[SartState]:
        """Every T steps: a change of phase first, then completions, then prunings by the threshold now in
        force."""
        p = self.parameters
        exploit = bool(state.earliest)
        # at each check: scores may come later than the completion whose reward they make up
        threshold = self._reward_of(state.earliest, view) if exploit else p.alpha
        most = p.N - 1 if exploit else p.most_pruned
        lowest_first = ranked(view.in_state(NodeState.LIVE), p.reward)[::-1]
        hopeless = [trace for trace in lowest_first if self._is_below(trace, threshold)]
        hopeless = hopeless[: max(0, most - view.count(NodeState.PRUNED))]
        actions: list[Action] = [Prune(trace.number) for trace in hopeless]
        if self._over(view, len(hopeless)):
            actions.append(Finish())
        return Step(state, tuple(actions), tournament=True)

    def _reward_of(self, earliest: Iterable[int], view: TreeView) -> float:
        """α′: the highest reward among those that completed first; α where none of them has one."""
        found = [reward(view[node], self.parameters.reward) for node in earliest]
        return max((r for r in found if r is not None), default=self.parameters.alpha)

    def _is_below(self, trace: Trace, threshold: float) -> bool:
        value = reward(trace, self.parameters.reward)
        return value is not None and value < threshold - ROUNDING
