"""Votes: pure functions from finished traces to one answer.

Ties go to the higher summed weight, then to more traces, then to the earliest finished; never to chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finished trace as a vote sees it.

    group: index of its group of equal answers; None: no answer, no vote. order: 1 for the earliest finished.
    mean_score, last_score, min_score: in [0, 1]; None without a scored thought.
    """

    node: int
    group: int | None
    order: int
    mean_score: float | None
    last_score: float | None = None
    min_score: float | None = None


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


def tally(candidates: Sequence[Candidate], weights: Sequence[float]) -> Decision:
    """Sums weights (>= 0, one per candidate) by group."""
    by_group: dict[int, list[tuple[float, Candidate]]] = {}
    for candidate, weight in zip(candidates, weights, strict=True):
        if candidate.group is not None:
            by_group.setdefault(candidate.group, []).append((weight, candidate))
    ranked = []
    for group, members in by_group.items():
        members.sort(key=lambda m: (-m[0], m[1].order))
        # summed in order of finishing, so that the sum does not depend on how the members came
        weight = sum(w for w, _ in sorted(members, key=lambda m: m[1].order))
        earliest = min(c.order for _, c in members)
        nodes = tuple(c.node for _, c in members)
        ranked.append((-weight, -len(members), earliest, GroupVote(group, weight, nodes)))
    ranked.sort(key=lambda r: r[:3])
    return Decision(tuple(r[3] for r in ranked))


def majority(candidates: Sequence[Candidate]) -> Decision:
    """Unweighted majority (self-consistency, arXiv 2203.11171)."""
    return tally(candidates, [1.0] * len(candidates))


def weighted(candidates: Sequence[Candidate]) -> Decision:
    """Weight = mean score (Gambit, arXiv 2608.08020, vote). A trace without a scored thought votes with the
    mean weight of the others, 1 if there are none."""
    return tally(candidates, _filled([c.mean_score for c in candidates]))


def best(candidates: Sequence[Candidate], by: Literal["mean", "last", "min"]) -> Decision:
    """Best of N (arXiv 2110.14168): the answer of the trace with the highest score.

    by: which of a trace's scores. A group weighs as much as its best trace. A trace without a scored thought
    has the mean of the others, 1 if there are none, so that without any score this is the majority.
    """
    scores = _filled(
        [{"mean": c.mean_score, "last": c.last_score, "min": c.min_score}[by] for c in candidates]
    )
    first: dict[int | None, int] = {}
    for i in sorted(range(len(candidates)), key=lambda i: (-scores[i], candidates[i].order)):
        first.setdefault(candidates[i].group, i)
    weights = [
        score if first[c.group] == i else 0.0
        for i, (c, score) in enumerate(zip(candidates, scores, strict=True))
    ]
    return tally(candidates, weights)


def _filled(scores: Sequence[float | None]) -> list[float]:
    """Missing scores replaced by the mean of the others, 1 if there are none."""
    known = [score for score in scores if score is not None]
    default = fsum(known) / len(known) if known else 1.0  # whatever their order
    return [default if score is None else score for score in scores]
