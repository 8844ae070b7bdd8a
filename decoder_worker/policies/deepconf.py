"""DeepConf: traces of which the model itself is not sure are stopped, and do not vote.

Deep Think with Confidence (DeepConf, arXiv 2508.15260). The paper's symbols:

N       total budget of traces (B in the paper)     η  share of traces, in percent, that is kept
N_init  warm-up traces                              τ  share of the vote that stops the search
C_t     confidence of trace t                       s  threshold: stops a trace, and filters the vote

A token's confidence, a group and a trace's lowest group: answers/confidence.py. Online, the warm-up traces
run to the end; s is percentile 100 − η of their lowest groups. A later trace stops once a full group falls
below s. After each finish the search stops if one answer has a share of τ. Offline, all N traces run to the
end and the top η percent vote.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import fsum
from typing import ClassVar, Literal

from decoder_worker.answers.confidence import Measure, falls_below, measure, percentile
from decoder_worker.answers.normal import normalise
from decoder_worker.answers.votes import Candidate, Decision, confident, confident_offline, filled, passes
from decoder_worker.policies.base import (
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
    OURS,
    Conflict,
    Limits,
    Parameters,
    choice,
    integer,
    real,
)
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState

PAPER = "arXiv 2508.15260"


@dataclass(frozen=True, slots=True)
class DeepConfParameters(Parameters):
    mode: Literal["online", "offline"] = choice(
        "online: stops traces, and the search; offline: filters and weights the vote only.",
        source=PAPER,
        paper="online",
        tiny="online",
        choices=("online", "offline"),
    )
    N: int = integer(
        "Total budget of traces.",
        symbol="N",
        source=f"{PAPER} (512 offline); tiny: this project, as many as gambit's C",
        paper=512,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    warmup_traces: int = integer(
        "Traces that run to the end before the others begin; online only.",
        symbol="N_init",
        source=f"{PAPER}; tiny: this project, a third of N",
        paper=16,
        tiny=8,
        minimum=1,
        maximum=MOST_TRACES,
    )
    eta: float = real(
        "Share of traces, in percent, that is kept: 10 is the paper's low, 90 its high, 100 filters nothing.",
        symbol="η",
        source=f"{PAPER}; tiny: this project, so that about half of the later traces are stopped",
        paper=10.0,
        tiny=50.0,
        minimum=1.0,
        maximum=100.0,
    )
    tau: float = real(
        "Share of the weight of all votes at which one answer stops the search; online only, and not in "
        "answer mode regex, where answers are read at the end.",
        symbol="τ",
        source=PAPER,
        paper=0.95,
        tiny=0.95,
        minimum=0.5,
        maximum=1.0,
    )
    consensus_traces: int = integer(
        "Votes that there must be before one answer can stop the search; online only.",
        source=OURS,
        paper=1,
        tiny=4,
        minimum=1,
        maximum=MOST_TRACES,
    )
    window: int = integer(
        "Tokens of a group, and of a trace's tail.",
        source=f"{PAPER}; tiny: this project, one to two thoughts",
        paper=2048,
        tiny=64,
        minimum=1,
        maximum=1_000_000,
        cap="max_context",
    )
    weight: Literal["mean", "tail", "bottom", "lowest", "majority"] = choice(
        "Confidence that weights a vote: the mean of all tokens, of the tail, of the bottom groups, of the "
        "lowest group; majority: none.",
        source=f"{PAPER} has all of them; which is the default: this project",
        paper="lowest",
        tiny="lowest",
        choices=("mean", "tail", "bottom", "lowest", "majority"),
    )
    bottom: float = real(
        "Share of a trace's groups that is its bottom, for the weight of that name.",
        source=PAPER,
        paper=0.1,
        tiny=0.1,
        minimum=0.0,
        maximum=1.0,
    )
    interval: int = integer(
        "Engine steps between two looks at the groups since the last one; online only.",
        source="this project; the paper looks at every token",
        paper=32,
        tiny=8,
        minimum=1,
        maximum=1_000_000,
        cap="max_context",
    )

    def conflicts(self, limits: Limits) -> Iterable[Conflict]:
        if self.mode == "offline":
            return
        counts = {"warmup_traces": self.warmup_traces, "consensus_traces": self.consensus_traces}
        for name, count in counts.items():
            if count > self.N:
                yield Conflict(
                    name,
                    frozenset({name, "N", "mode"}),
                    f"must be a whole number from 1 to {self.N} (N) when mode is online, not {count}",
                )


@lru_cache(maxsize=4096)  # every finish looks at all answers again
def _spelling(answer: str) -> str:
    return normalise(answer)


@dataclass(frozen=True, slots=True)
class DeepConfState:
    """warm: whether the warm-up is over. threshold: s; None before that, and when no trace had a confidence.
    finished: per finished trace (node, C_t, lowest group), the last two None without a confidence."""

    warm: bool = False
    threshold: float | None = None
    finished: tuple[tuple[int, float | None, float | None], ...] = ()


class DeepConf(Policy[DeepConfState]):
    """Consensus is looked for among the finished traces that vote, by the spelling of their answers: answers
    that are equal only mathematically are not found to be, and the search then goes on. In answer mode regex
    there is none: a client's pattern, which may take for ever, runs once, at the end. A search that ends
    within its warm-up votes as offline."""

    name = "deepconf"
    summary = "Stops the traces that the model is unsure of, by its own confidence; confidence-weighted vote."
    source = "Deep Think with Confidence (DeepConf), arXiv 2508.15260"
    needs_scores = False
    parameters_type: ClassVar[type[Parameters]] = DeepConfParameters
    state_type = DeepConfState
    parameters: DeepConfParameters

    def __init__(self, parameters: DeepConfParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.N

    @property
    def online(self) -> bool:
        return self.parameters.mode == "online"

    @property
    def check_every(self) -> int:
        return self.parameters.interval if self.online else 0

    @property
    def needs_confidence(self) -> bool:
        return True

    def initial(self, seed: int) -> DeepConfState:
        return DeepConfState()

    def step(self, state: DeepConfState, view: TreeView, observation: Observation) -> Step[DeepConfState]:
        p = self.parameters
        match observation:
            case Started():
                return Step(state, (SpawnRoot(),) * (p.warmup_traces if self.online else p.N))
            case StepsPassed(steps=steps) if state.threshold is not None:
                live = view.in_state(NodeState.LIVE)
                unsure = [t for t in live if falls_below(t.confidences, state.threshold, p.window, steps)]
                return Step(state, tuple(Prune(trace.number) for trace in unsure))
            case TracesFinished(nodes=nodes):
                state = replace(state, finished=(*state.finished, *(self._noted(view[n]) for n in nodes)))
                return self._after_a_finish(state, view)
            case EngineIdle():
                return self._after_a_finish(state, view)
            case _:
                return Step(state)

    def vote(self, state: DeepConfState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        p = self.parameters
        if self.online and state.warm:
            return confident(
                candidates, p.weight, window=p.window, bottom=p.bottom, threshold=state.threshold
            )
        return confident_offline(candidates, p.weight, window=p.window, bottom=p.bottom, eta=p.eta)

    def _noted(self, trace: Trace) -> tuple[int, float | None, float | None]:
        p = self.parameters
        weight: Measure | None = None if p.weight == "majority" else p.weight
        of = trace.confidences
        confidence = 1.0 if weight is None else measure(of, weight, p.window, p.bottom)
        return trace.number, confidence, measure(of, "lowest", p.window)

    def _after_a_finish(self, state: DeepConfState, view: TreeView) -> Step[DeepConfState]:
        if not self.online:
            return Step(state, () if view.capacity_count else (Finish(),))
        if not state.warm:
            if view.capacity_count:
                return Step(state)
            lowest = [low for _, _, low in state.finished if low is not None]
            threshold = percentile(lowest, 100 - self.parameters.eta) if lowest else None
            state = replace(state, warm=True, threshold=threshold)
            if not self._is_consensus(state, view):
                # none when the warm-up was all: then the search ends below
                spawned = (SpawnRoot(),) * (self.parameters.N - len(view))
                return Step(state, spawned or (Finish(),))
        over = not view.capacity_count or self._is_consensus(state, view)
        return Step(state, (Finish(),) if over else ())

    def _is_consensus(self, state: DeepConfState, view: TreeView) -> bool:
        """Whether one answer has a share of τ of the weight of all votes so far."""
        voting = [(n, c) for n, c, low in state.finished if passes(low, state.threshold)]
        by_answer: dict[str, list[float]] = {}
        for (node, _), weight in zip(voting, filled([c for _, c in voting]), strict=True):
            answer = view[node].answer
            if answer is not None:
                by_answer.setdefault(_spelling(answer), []).append(weight)
        votes = sum(map(len, by_answer.values()))
        shares = [fsum(weights) for weights in by_answer.values()]
        everything = fsum(shares)
        enough = votes >= self.parameters.consensus_traces and everything > 0
        return enough and max(shares) >= self.parameters.tau * everything
