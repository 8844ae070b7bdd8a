"""Votes: pure functions from finished traces to one answer.

Ties go to the higher summed weight, then to more traces, then to the earliest finished; never to chance.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from typing import Literal

from decoder_worker.answers.confidence import Measure, measure, percentile

Aggregate = Literal["mean", "last", "min", "product"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finished trace as a vote sees it.

    group: index of its group of equal answers; None: no answer, no vote. order: 1 for the earliest finished.
    mean_score, last_score, min_score, product_score: over its thoughts, inherited ones included, in [0, 1];
    None without a scored thought. path: the nodes that its tokens lie in, from the root on and itself last,
    each with the position at which they leave it. confidences: of its own tokens, where they were asked for.
    """

    node: int
    group: int | None
    order: int
    mean_score: float | None
    last_score: float | None = None
    min_score: float | None = None
    product_score: float | None = None
    path: tuple[tuple[int, int], ...] = ()
    confidences: Sequence[float] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class GroupVote:
    """One group of equal answers: its summed weight and its traces, heaviest first, then earliest first."""

    group: int
    weight: float
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Groups, best first; empty: no answer."""

    groups: tuple[GroupVote, ...]

    @property
    def winner(self) -> GroupVote | None:
        return self.groups[0] if self.groups else None


def tally(
    candidates: Sequence[Candidate],
    weights: Sequence[float],
    backing: Mapping[int, int] | None = None,
) -> Decision:
    """Sums weights (>= 0, one per candidate) by group.

    backing: a number by node, summed by group, that breaks ties of weight before the number of traces does.
    """
    by_group: dict[int, list[tuple[float, Candidate]]] = {}
    for candidate, weight in zip(candidates, weights, strict=True):
        if candidate.group is not None:
            by_group.setdefault(candidate.group, []).append((weight, candidate))
    ranked = []
    for group, members in by_group.items():
        members.sort(key=lambda m: (-m[0], m[1].order))
        weight = fsum(w for w, _ in members)  # whatever their order: rounding decides no tie
        backed = sum((backing or {}).get(c.node, 0) for _, c in members)
        earliest = min(c.order for _, c in members)
        nodes = tuple(c.node for _, c in members)
        ranked.append((-weight, -backed, -len(members), earliest, GroupVote(group, weight, nodes)))
    ranked.sort(key=lambda r: r[:4])
    return Decision(tuple(r[4] for r in ranked))


def majority(candidates: Sequence[Candidate], backing: Mapping[int, int] | None = None) -> Decision:
    """Unweighted majority (self-consistency, arXiv 2203.11171).

    backing: traces that were pruned into each finished one, by node; they break ties before the common rule
    does (Slim-SC, arXiv 2509.13990).
    """
    return tally(candidates, [1.0] * len(candidates), backing)


def weighted(candidates: Sequence[Candidate], by: Aggregate = "mean") -> Decision:
    """Weight = the trace's score: its mean (Gambit, arXiv 2608.08020; STEP, arXiv 2601.09093), or one of the
    aggregations of REBASE (arXiv 2408.00724). A trace without a scored thought votes with the mean weight of
    the others, 1 if there are none."""
    return tally(candidates, filled([_score(c, by) for c in candidates]))


def decorrelated(candidates: Sequence[Candidate]) -> Decision:
    """Weight = mean score × (1/L) Σ_t 1/m_t, with L the trace's total length and m_t the number of finished
    traces that share its position t, so that what ten branches have in common is not counted ten times.
    Missing scores as in `weighted`, which this equals when no two traces share a position."""
    scores = filled([c.mean_score for c in candidates])
    unshared = _unshared([c.path for c in candidates])
    return tally(candidates, [score * share for score, share in zip(scores, unshared, strict=True)])


def best(candidates: Sequence[Candidate], by: Aggregate) -> Decision:
    """Best of N (arXiv 2110.14168): the answer of the trace with the highest score.

    by: which of a trace's scores. A group weighs as much as its best trace. A trace without a scored thought
    has the mean of the others, 1 if there are none, so that without any score this is the majority.
    """
    scores = filled([_score(c, by) for c in candidates])
    first: dict[int | None, int] = {}
    for i in sorted(range(len(candidates)), key=lambda i: (-scores[i], candidates[i].order)):
        first.setdefault(candidates[i].group, i)
    weights = [
        score if first[c.group] == i else 0.0
        for i, (c, score) in enumerate(zip(candidates, scores, strict=True))
    ]
    return tally(candidates, weights)


def confident(
    candidates: Sequence[Candidate],
    by: Measure | Literal["majority"],
    *,
    window: int,
    bottom: float = 0.1,
    threshold: float | None = None,
) -> Decision:
    """DeepConf's online vote (arXiv 2508.15260): over the traces whose lowest group is at or above the
    threshold (None: over all), each weighted by its confidence; `majority`: by 1.

    A trace without confidences passes, and votes with the mean weight of the others, 1 if there are none. If
    no trace that passes has an answer, all of them vote (this project's choice).
    """
    lowest = [measure(c.confidences, "lowest", window) for c in candidates]
    kept = [c for c, low in zip(candidates, lowest, strict=True) if passes(low, threshold)]
    return _by_confidence(candidates, kept, by, window, bottom)


def passes(confidence: float | None, threshold: float | None) -> bool:
    """Whether a trace votes: no threshold stops any, and none stops a trace without a confidence."""
    return threshold is None or confidence is None or confidence >= threshold


def confident_offline(
    candidates: Sequence[Candidate],
    by: Measure | Literal["majority"],
    *,
    window: int,
    eta: float = 100.0,
    bottom: float = 0.1,
) -> Decision:
    """DeepConf's offline vote (arXiv 2508.15260): over the top eta percent of all traces, each weighted
    by its confidence; `majority`: by 1, where the mean confidence says which are the top ones.

    Traces without confidences, and without any answer among the top, as in `confident`.
    """
    filtering: Measure = "mean" if by == "majority" else by
    values = [measure(c.confidences, filtering, window, bottom) for c in candidates]
    known = [value for value in values if value is not None]
    threshold = percentile(known, 100 - eta) if known else 0.0
    kept = [c for c, value in zip(candidates, values, strict=True) if passes(value, threshold)]
    return _by_confidence(candidates, kept, by, window, bottom)


def aggregate(scores: Sequence[float], by: Aggregate) -> float | None:
    """One score of a trace out of those of its thoughts; None without any."""
    if not scores:
        return None
    match by:
        case "mean":
            return fsum(scores) / len(scores)
        case "last":
            return scores[-1]
        case "min":
            return min(scores)
        case "product":
            return math.prod(scores)


def _score(candidate: Candidate, by: Aggregate) -> float | None:
    match by:
        case "mean":
            return candidate.mean_score
        case "last":
            return candidate.last_score
        case "min":
            return candidate.min_score
        case "product":
            return candidate.product_score


def _by_confidence(
    everyone: Sequence[Candidate],
    kept: Sequence[Candidate],
    by: Measure | Literal["majority"],
    window: int,
    bottom: float,
) -> Decision:
    voters = kept if any(c.group is not None for c in kept) else everyone
    if by == "majority":
        return majority(voters)
    return tally(voters, filled([measure(c.confidences, by, window, bottom) for c in voters]))


def _unshared(paths: Sequence[tuple[tuple[int, int], ...]]) -> list[float]:
    """(1/L) Σ_t 1/m_t of each path; 1 for one without a token."""
    ends: dict[int, list[int]] = {}  # where the paths leave each node
    for path in paths:
        for node, end in path:
            ends.setdefault(node, []).append(end)
    for leaving in ends.values():
        leaving.sort()
    return [_unshared_part(path, ends) for path in paths]


def _unshared_part(path: tuple[tuple[int, int], ...], ends: Mapping[int, Sequence[int]]) -> float:
    total, start = 0.0, 0
    for node, end in path:
        there = len(ends[node])
        for left, stop in enumerate((*ends[node][: bisect_left(ends[node], end)], end)):
            total += (stop - start) / (there - left)
            start = stop
    return total / start if start else 1.0


def filled(scores: Sequence[float | None]) -> list[float]:
    """Missing scores replaced by the mean of the others, 1 if there are none."""
    known = [score for score in scores if score is not None]
    default = fsum(known) / len(known) if known else 1.0  # whatever their order
    return [default if score is None else score for score in scores]
