"""The order in which traces stand: by score, best first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import sqrt
from typing import Literal

from decoder_worker.answers.votes import Aggregate, aggregate
from decoder_worker.policies.base import Pressure
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState

Unscored = Literal["mean", "zero"]


def reward(trace: Trace, by: Aggregate = "mean") -> float | None:
    """One score of a trace out of those of its thoughts, inherited ones included; None without any."""
    return trace.mean_score if by == "mean" else aggregate(trace.scores(), by)


def rewards(
    traces: Collection[Trace], by: Aggregate = "mean", unscored: Unscored = "mean"
) -> dict[int, float]:
    """Rewards by node. A trace without a scored thought has the mean of those that have one, so that
    newcomers are neither killed nor spared (this project's choice: the papers are silent, or give it 0)."""
    return filled({trace.number: reward(trace, by) for trace in traces}, unscored)


def filled(found: Mapping[int, float | None], unscored: Unscored = "mean") -> dict[int, float]:
    """Rewards by node, with one for those that have none, as in `rewards`."""
    known = [r for r in found.values() if r is not None]
    missing = sum(known) / len(known) if known and unscored == "mean" else 0.0
    return {node: missing if r is None else r for node, r in found.items()}


def ranked(traces: Collection[Trace], by: Aggregate = "mean", unscored: Unscored = "mean") -> list[Trace]:
    """By reward, descending; ties go to the lower node number."""
    return in_order(traces, rewards(traces, by, unscored))


def in_order(traces: Collection[Trace], stand: Mapping[int, float]) -> list[Trace]:
    """By the reward given for each, as `ranked` has them."""
    order = sorted((-stand[trace.number], trace.number, trace) for trace in traces)
    return [trace for _, _, trace in order]


def lowest_until_freed(view: TreeView, pressure: Pressure, unscored: Unscored) -> list[Trace]:
    """The lowest live traces, until the blocks asked for are given back; never the last one.

    Counted are the blocks that a trace has for itself; those that only the chosen ones share come on top, so
    that sometimes a trace more is chosen than had to be.
    """
    held = dict(pressure.held)
    freed = 0
    chosen: list[Trace] = []
    for trace in ranked(view.in_state(NodeState.LIVE), unscored=unscored)[:0:-1]:
        if freed >= pressure.blocks:
            break
        freed += held.get(trace.number, 0)
        chosen.append(trace)
    return chosen


def uncertainty(trace: Trace) -> float:
    """How little a mean score says yet: the standard deviation of Beta(1 + Σs, 1 + Σ(1 − s)), s its scores.

    That of a trace without a scored thought is the largest one. (This project's choice.)
    """
    a = 1 + trace.scored * (trace.mean_score or 0.0)
    b = 2 + trace.scored - a
    return sqrt(a * b / ((a + b) ** 2 * (a + b + 1)))
