"""Slim-SC: of two traces that think the same, one is enough.

Slim-SC: Thought Pruning for Efficient Scaling with Self-Consistency (arXiv 2509.13990). N traces.

From a number of thoughts on, every new thought of a running trace is embedded and compared by cosine with the
thoughts of the other running traces at about the same index. If two are similar enough, one of the two traces
is pruned: at random, or the one that is more similar to the rest.

The threshold, and the window of indices within which thoughts are compared, are this project's reading of the
paper. Thoughts are merged ones throughout: a thought shorter than `shortest` tokens belongs to the next.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np

from decoder_worker.answers.votes import Candidate, Decision, majority
from decoder_worker.policies.base import Observation, Policy, Prune, Step, ThoughtsEmbedded
from decoder_worker.policies.independent import independent_step
from decoder_worker.policies.parameters import (
    MOST_TRACES,
    Conflict,
    Limits,
    Parameters,
    choice,
    integer,
    real,
)
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState

PAPER = "arXiv 2509.13990"
# By which the cosine of a vector with itself may miss 1.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class SlimScParameters(Parameters):
    N: int = integer(
        "Traces, sampled independently.",
        symbol="N",
        source=f"{PAPER}; defaults: this project, tiny as many as gambit's C",
        paper=64,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    threshold: float = real(
        "Cosine of two thoughts at or above which one of the two traces is pruned.",
        source=f"this project's reading of {PAPER}",
        paper=0.98,
        tiny=0.98,
        minimum=-1.0,
        maximum=1.0,
    )
    start_after: int = integer(
        "Thoughts of a trace that are not compared, from the first one on.",
        source=f"{PAPER}; which is meant: this project; tiny: this project, half of a trace",
        paper=20,
        tiny=6,
        minimum=0,
        maximum=1_000_000,
        cap="max_context",
    )
    index_window: int = integer(
        "How far apart the indices of two thoughts may be that are compared.",
        source=f"this project's reading of {PAPER}",
        paper=1,
        tiny=1,
        minimum=0,
        maximum=1_000_000,
    )
    shortest: int = integer(
        "Tokens below which a thought is merged with the next.",
        source=PAPER,
        paper=25,
        tiny=25,
        minimum=1,
        maximum=1_000_000,
        cap="max_context",
    )
    pruning: Literal["random", "diversity"] = choice(
        "Which of two is pruned: either, by a seeded coin, or the one more similar to the other traces.",
        source=f"{PAPER}; the default: this project",
        paper="diversity",
        tiny="diversity",
        choices=("random", "diversity"),
    )

    def conflicts(self, limits: Limits) -> Iterable[Conflict]:
        if (self.start_after + 1) * self.shortest >= limits.max_context:
            most = (limits.max_context - 1) // self.shortest - 1
            yield Conflict(
                "start_after",
                frozenset({"start_after", "shortest"}),
                f"must be a whole number from 0 to {most} (no trace has more thoughts of {self.shortest} "
                f"tokens, shortest), not {self.start_after}",
            )


@dataclass(frozen=True, slots=True)
class SlimScState:
    """seed, tosses: where the coin stands. pruned: (node, the similar one that stayed)."""

    seed: int = 0
    tosses: int = 0
    pruned: tuple[tuple[int, int], ...] = ()


class SlimSc(Policy[SlimScState]):
    """Of each pair one stays, so that one trace at least runs to the end. `diversity`: equally similar ones
    are as good as each other, and the higher number goes (this project's choice)."""

    name = "slim_sc"
    summary = "N independent traces; of two whose thoughts are nearly the same one is pruned; majority."
    source = "Slim-SC: Thought Pruning for Efficient Scaling with Self-Consistency, arXiv 2509.13990"
    needs_scores = False
    parameters_type: ClassVar[type[Parameters]] = SlimScParameters
    state_type = SlimScState
    parameters: SlimScParameters

    def __init__(self, parameters: SlimScParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.N

    @property
    def needs_embeddings(self) -> bool:
        return True

    @property
    def shortest_embedded(self) -> int:
        return self.parameters.shortest

    @property
    def first_embedded(self) -> int:
        return max(0, self.parameters.start_after - self.parameters.index_window)

    def initial(self, seed: int) -> SlimScState:
        return SlimScState(seed=seed)

    def step(self, state: SlimScState, view: TreeView, observation: Observation) -> Step[SlimScState]:
        if isinstance(observation, ThoughtsEmbedded):
            return self._compare(state, view, observation)
        return Step(state, independent_step(self.parameters.N, view, observation).actions)

    def vote(self, state: SlimScState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        """Majority; ties by the number of traces pruned into each group, by way of others or not."""
        kept_by = dict(state.pruned)
        backing: Counter[int] = Counter()
        for node in kept_by:
            while node in kept_by:
                node = kept_by[node]
            backing[node] += 1
        return majority(candidates, backing)

    def _compare(self, state: SlimScState, view: TreeView, news: ThoughtsEmbedded) -> Step[SlimScState]:
        running = {trace.number: trace for trace in view.in_state(NodeState.LIVE)}
        pruned: list[Prune] = []
        for node, index in news.embedded:
            if index < self.parameters.start_after or node not in running:
                continue
            for other, at in self._similar(running, node, index):
                state, gone = self._one_of_two(state, running, (node, index), (other, at))
                stays = other if gone == node else node
                state = replace(state, pruned=(*state.pruned, (gone, stays)))
                pruned.append(Prune(gone))
                del running[gone]
                if gone == node:
                    break
        return Step(state, tuple(pruned))

    def _similar(self, running: dict[int, Trace], node: int, index: int) -> list[tuple[int, int]]:
        """(node, index) of the thoughts of other running traces that are as good as this one, most similar
        first, one of each trace."""
        vector = running[node].embeddings[index]
        found = []
        for other in sorted(running.keys() - {node}):
            best = self._nearest(vector, running[other], index)
            if best is not None and best[0] >= self.parameters.threshold - ROUNDING:
                found.append((-best[0], other, best[1]))
        return [(other, at) for _, other, at in sorted(found)]

    def _nearest(self, vector: Sequence[float], trace: Trace, index: int) -> tuple[float, int] | None:
        """The trace's thought within the window that is most similar, as (cosine, index)."""
        w = self.parameters.index_window
        near = [at for at in range(index - w, index + w + 1) if at in trace.embeddings]
        return max(((_cosine(vector, trace.embeddings[at]), at) for at in near), default=None)

    def _one_of_two(
        self,
        state: SlimScState,
        running: dict[int, Trace],
        a: tuple[int, int],
        b: tuple[int, int],
    ) -> tuple[SlimScState, int]:
        """Which of two similar thoughts' (node, index) traces goes."""
        if self.parameters.pruning == "random":
            coin = random.Random(f"{state.seed}/{state.tosses}")
            return replace(state, tosses=state.tosses + 1), coin.choice(sorted((a[0], b[0])))
        rest = [trace for number, trace in running.items() if number not in (a[0], b[0])]
        likeness = {node: self._likeness(running[node].embeddings[at], rest, at) for node, at in (a, b)}
        return state, max(likeness, key=lambda node: (likeness[node], node))

    def _likeness(self, vector: Sequence[float], rest: Iterable[Trace], index: int) -> float:
        """Mean similarity to the other running traces that have a thought to compare it with."""
        near = [self._nearest(vector, trace, index) for trace in rest]
        return fmean(found) if (found := [n[0] for n in near if n is not None]) else 0.0


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    u: Any = np.asarray(a, dtype=np.float64)
    v: Any = np.asarray(b, dtype=np.float64)
    lengths = float(np.linalg.norm(u) * np.linalg.norm(v))
    return float(u @ v) / lengths if lengths else 0.0
