"""Gambit: tournaments that prune the worst traces and branch the best.

Thought-Level Beam Search for Reasoning (Gambit, COLM 2026, arXiv 2608.08020). The paper's symbols:

C   logical capacity                 N      traces that count now: pending, live, held and ghost
K   exchange size of a tournament    N_max  finished traces that end the search
Δ   thoughts between tournaments     w      warm-up: tokens that a trace generates before it is branched
r   KV high-water mark               s̄      mean score of a trace, inherited thoughts included
B   live traces that may be branched
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from decoder_worker.answers.votes import Candidate, Decision, weighted
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
    SpawnRoot,
    Started,
    Step,
)
from decoder_worker.policies.gambit_parameters import GambitParameters
from decoder_worker.policies.parameters import Parameters
from decoder_worker.policies.ranking import ranked
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState


@dataclass(frozen=True, slots=True)
class GambitState:
    """Thoughts whose score has arrived since the last tournament.

    thoughts: over the tree; what the last tournament did not use up is carried over. by_trace: of each trace
    by itself, as (node, thoughts). Only the one that `interval_scope` names is counted.
    """

    thoughts: int = 0
    by_trace: tuple[tuple[int, int], ...] = ()


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

    def initial(self, seed: int) -> GambitState:
        return GambitState()

    def step(self, state: GambitState, view: TreeView, observation: Observation) -> Step[GambitState]:
        held = False
        match observation:
            case Started():
                return Step(state, (SpawnRoot(),) * self.parameters.C)
            case Pressure():
                return Step(state, self._evictions(view, observation))
            case BoundariesScored(scored=scored):
                state, held = self._count(state, (node for node, _ in scored))
        # the finish that completes N_max closes a round at once; the others wait for the next one
        over = isinstance(observation, EngineIdle) or view.count(NodeState.FINISHED) >= self.parameters.N_max
        if not (held or over):
            return Step(state)
        actions = self._round(view)
        return Step(state, (*actions, Finish()) if over else actions, tournament=True)

    def vote(self, state: GambitState, view: TreeView, candidates: Sequence[Candidate]) -> Decision:
        """a* = argmax over answers a of the sum of s̄_i over the finished traces i that answer a."""
        return weighted(candidates)

    def _count(self, state: GambitState, nodes: Iterable[int]) -> tuple[GambitState, bool]:
        """Counts scored thoughts; true when Δ of them make a tournament due, at most one at a time."""
        delta = self.parameters.interval
        if self.parameters.interval_scope == "tree":
            thoughts = state.thoughts + sum(1 for _ in nodes)
            held = thoughts >= delta
            return replace(state, thoughts=thoughts - delta if held else thoughts), held
        counts = dict(state.by_trace)
        for node in nodes:
            counts[node] = counts.get(node, 0) + 1
        if max(counts.values(), default=0) >= delta:
            return replace(state, by_trace=()), True
        return replace(state, by_trace=tuple(sorted(counts.items()))), False

    def _round(self, view: TreeView) -> tuple[Action, ...]:
        """One tournament: a refill while traces are missing, an exchange at full capacity."""
        p = self.parameters
        standing = ranked(view.counting)
        n = len(standing)
        b = [trace for trace in standing if self._may_be_branched(trace)]
        if n < p.C and p.refill:
            return _branches(b[: p.C - n])
        # n is C here, unless refill is off: then the exchange goes on among those that are left
        k = min(p.K, len(b), n // 2)
        parents = b[:k]
        chosen = {trace.number for trace in parents}
        others = [trace for trace in standing if trace.number not in chosen]
        pruned = others[::-1][:k]
        return (*(Prune(trace.number) for trace in pruned), *_branches(parents))

    def _may_be_branched(self, trace: Trace) -> bool:
        """Whether the trace is in B: live, warm, and with a boundary of its own to branch at."""
        own = self.parameters.warmup_scope == "own"
        return (
            trace.state is NodeState.LIVE
            and (trace.own_tokens if own else trace.total_tokens) >= self.parameters.warmup
            and trace.last_scored() is not None
        )

    def _evictions(self, view: TreeView, pressure: Pressure) -> tuple[Action, ...]:
        """The lowest live traces, until enough KV is given back; never the last one."""
        held = dict(pressure.held)
        freed = 0
        evicted: list[Action] = []
        for trace in ranked(view.in_state(NodeState.LIVE))[:0:-1]:
            if freed >= pressure.blocks:
                break
            freed += held.get(trace.number, 0)
            evicted.append(Evict(trace.number))
        return tuple(evicted)


def _branches(parents: Sequence[Trace]) -> tuple[Branch, ...]:
    return tuple(Branch(trace.number) for trace in parents)
