"""Gambit: tournaments that prune the worst traces and branch the best.

Thought-Level Beam Search for Reasoning (Gambit, COLM 2026, arXiv 2608.08020). The paper's symbols:

C   logical capacity                 N      traces that count now: pending, live, held and ghost
K   exchange size of a tournament    N_max  finished traces that end the search
Δ   thoughts between tournaments     w      warm-up: tokens that a trace generates before it is branched
r   KV high-water mark               s̄      mean score of a trace, inherited thoughts included
B   live traces that may be branched

What the paper's critics ask for is here, too, and off unless a parameter turns it on: `vote = decorrelated`,
`revive_ghosts`, the confidence-gated warm-up (m = `stable_thoughts`) and the uncertainty reserve (u =
`reserve`). What each means exactly is this project's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar

from decoder_worker.answers.votes import Candidate, Decision, decorrelated, weighted
from decoder_worker.policies.base import (
    Action,
    BoundariesScored,
    Branch,
    EngineIdle,
    Evict,
    Finish,
    Observation,
    Policy,
    Pressure,
    Prune,
    Revive,
    SpawnRoot,
    Started,
    Step,
    StepsPassed,
)
from decoder_worker.policies.gambit_parameters import GambitParameters
from decoder_worker.policies.parameters import Parameters
from decoder_worker.policies.ranking import lowest_until_freed, ranked, uncertainty
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState


@dataclass(frozen=True, slots=True)
class GambitState:
    """Thoughts whose score has arrived since the last tournament.

    thoughts: over the tree; what the last tournament did not use up is carried over. by_trace: of each trace
    by itself, as (node, thoughts). Only the one that `interval_scope` names is counted.

    places: for the confidence-gated warm-up, per counting trace: (node, its place in the ranking after each
    of its last m scored thoughts), from 0 for the best to 1 for the worst.
    """

    thoughts: int = 0
    by_trace: tuple[tuple[int, int], ...] = ()
    places: tuple[tuple[int, tuple[float, ...]], ...] = ()


class Gambit(Policy[GambitState]):
    name = "gambit"
    summary = "Tournaments over C traces: every Δ thoughts the worst K are pruned and the best K branched."
    source = "Thought-Level Beam Search for Reasoning (Gambit), arXiv 2608.08020"
    needs_scores = True
    parameters_type: ClassVar[type[Parameters]] = GambitParameters
    state_type = GambitState

    def __init__(self, parameters: GambitParameters) -> None:
        self.parameters = parameters

    @property
    def capacity(self) -> int:
        return self.parameters.C

    @property
    def high_water(self) -> float:
        return self.parameters.high_water

    @property
    def child_temperature(self) -> float | None:
        return self.parameters.child_temperature

    @property
    def check_every(self) -> int:
        return self.parameters.revive_interval if self.parameters.revive_ghosts else 0

    def initial(self, seed: int) -> GambitState:
        return GambitState()

    def step(self, state: GambitState, view: TreeView, observation: Observation) -> Step[GambitState]:
        held = False
        match observation:
            case Started():
                return Step(state, (SpawnRoot(),) * self.parameters.C)
            case Pressure():
                lowest = lowest_until_freed(view, observation, self.parameters.unscored)
                return Step(state, tuple(Evict(trace.number) for trace in lowest))
            case StepsPassed(kv_use=kv_use):
                return Step(state, self._revival(view, kv_use))
            case BoundariesScored(scored=scored):
                nodes = [node for node, _ in scored]
                state, held = self._count(self._note_places(state, view, nodes), nodes)
        # the finish that completes N_max closes a round at once; the others wait for the next one
        over = isinstance(observation, EngineIdle) or view.count(NodeState.FINISHED) >= self.parameters.N_max
        if not (held or over):
            return Step(state)
        actions = self._round(state, view)
        return Step(state, (*actions, Finish()) if over else actions, tournament=True)

    def vote(self, state: GambitState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        """a* = argmax over answers a of the sum of s̄_i over the finished traces i that answer a;
        decorrelated: of s̄_i times the share of trace i that is its own."""
        return decorrelated(candidates) if self.parameters.vote == "decorrelated" else weighted(candidates)

    def _count(self, state: GambitState, nodes: Sequence[int]) -> tuple[GambitState, bool]:
        """Counts scored thoughts; true when Δ of them make a tournament due, at most one at a time."""
        delta = self.parameters.interval
        if self.parameters.interval_scope == "tree":
            thoughts = state.thoughts + len(nodes)
            held = thoughts >= delta
            return replace(state, thoughts=thoughts - delta if held else thoughts), held
        counts = dict(state.by_trace)
        for node in nodes:
            counts[node] = counts.get(node, 0) + 1
        if max(counts.values(), default=0) >= delta:
            return replace(state, by_trace=()), True
        return replace(state, by_trace=tuple(sorted(counts.items()))), False

    def _round(self, state: GambitState, view: TreeView) -> tuple[Action, ...]:
        """One tournament: a refill while traces are missing, an exchange at full capacity."""
        p = self.parameters
        standing = ranked(view.counting, unscored=p.unscored)
        n = len(standing)
        stable = self._stable(state)
        b = (t for t in standing if self._may_be_branched(t) and (stable is None or t.number in stable))
        if n < p.C and p.refill:
            return _branches(list(islice(b, p.C - n)))
        # n is C here, unless refill is off: then the exchange goes on among those that are left
        parents = list(islice(b, min(p.K, n // 2)))
        chosen = {trace.number for trace in parents}
        others = self._without_reserve([trace for trace in standing if trace.number not in chosen])
        pruned = list(islice(reversed(others), len(parents)))
        # an exchange: where the reserve spares some, fewer are branched
        return (*(Prune(trace.number) for trace in pruned), *_branches(parents[: len(pruned)]))

    def _without_reserve(self, traces: Sequence[Trace]) -> Sequence[Trace]:
        """All but the u most uncertain; ties go to the lower number, which is spared."""
        if not self.parameters.reserve:
            return traces
        by_uncertainty = sorted(traces, key=lambda t: (-uncertainty(t), t.number))
        spared = {trace.number for trace in by_uncertainty[: self.parameters.reserve]}
        return [trace for trace in traces if trace.number not in spared]

    def _may_be_branched(self, trace: Trace) -> bool:
        """Whether the trace is in B: live, warm, and with a boundary of its own to branch at."""
        own = self.parameters.warmup_scope == "own"
        return (
            trace.state is NodeState.LIVE
            and (trace.own_tokens if own else trace.total_tokens) >= self.parameters.warmup
            and trace.last_scored() is not None
        )

    def _note_places(self, state: GambitState, view: TreeView, nodes: Sequence[int]) -> GambitState:
        """Notes where the traces stand whose scores have arrived: once, however many of a trace's came at a
        time, since it then stood at one place."""
        m = self.parameters.stable_thoughts
        if not m:
            return state
        standing = ranked(view.counting, unscored=self.parameters.unscored)
        place = {trace.number: i / max(1, len(standing) - 1) for i, trace in enumerate(standing)}
        places = {node: past for node, past in state.places if node in place}
        for node in dict.fromkeys(nodes):
            if node in place:
                places[node] = (*places.get(node, ()), place[node])[-m:]
        return replace(state, places=tuple(sorted(places.items())))

    def _stable(self, state: GambitState) -> set[int] | None:
        """Traces whose place has moved by no more than `stable_within` over their last m own thoughts; None:
        no such condition."""
        m, within = self.parameters.stable_thoughts, self.parameters.stable_within
        if not m:
            return None
        return {node for node, past in state.places if len(past) == m and max(past) - min(past) <= within}

    def _revival(self, view: TreeView, kv_use: float) -> tuple[Action, ...]:
        """The best ghost in the upper half, when memory is free; one at a time, so that it fills slowly."""
        p = self.parameters
        if not p.revive_ghosts or kv_use >= p.high_water - p.revive_margin:
            return ()
        standing = ranked(view.counting, unscored=p.unscored)
        upper = standing[: len(standing) // 2]
        return tuple(Revive(t.number) for t in upper if t.state is NodeState.GHOST)[:1]


def _branches(parents: Sequence[Trace]) -> tuple[Branch, ...]:
    return tuple(Branch(trace.number) for trace in parents)
