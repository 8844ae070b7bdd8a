"""Figures of merit, from numbers alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thoughtbeam.runtime.scorer_dataset_reader import Array

BINS = 10
_DRAWS = 2000


def auroc(scores: Array, right: Array) -> float:
    """Chance that a right one scores higher than a wrong one, ties counting half; NaN without both."""
    wins, pairs = ranking(scores, right)
    return wins / pairs if pairs else float("nan")


def ranking(scores: Array, right: Array) -> tuple[float, int]:
    """Pairs of a right and a wrong one that are ranked right, ties counting half, and all such pairs."""
    good, bad = np.sort(scores[right]), np.sort(scores[~right])
    below = np.searchsorted(bad, good, side="left").sum()
    not_above = np.searchsorted(bad, good, side="right").sum()
    return float(below + not_above) / 2, len(good) * len(bad)


def draws(units: int, seed: int = 0) -> Array:
    """Bootstrap: how often each unit is in each of the draws, [draws, units]."""
    random = np.random.default_rng(seed)
    return (
        random.multinomial(units, np.full(units, 1 / units), size=_DRAWS) if units else np.empty((_DRAWS, 0))
    )


def ratio_interval(numerators: Array, denominators: Array, drawn: Array) -> tuple[float, float]:
    """95 % percentile interval of a sum over units divided by another one; units are drawn with replacement.

    NaN where no unit has a denominator.
    """
    low, high = np.quantile(_ratios(numerators, denominators, drawn), [0.025, 0.975])
    return float(low), float(high)


def difference_interval(
    first: Array, second: Array, denominators: Array, drawn: Array
) -> tuple[float, float]:
    """The same of the difference of two such ratios over the same units."""
    ratios = _ratios(first, denominators, drawn) - _ratios(second, denominators, drawn)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _ratios(numerators: Array, denominators: Array, drawn: Array) -> Array:
    if not denominators.any():
        return np.full(1, np.nan)
    below = drawn @ denominators
    ratios: Array = (drawn @ numerators)[below > 0] / below[below > 0]
    return ratios


@dataclass(frozen=True, slots=True)
class Bin:
    """Traces with similar scores. score: their mean. share: of them that are right."""

    score: float
    share: float
    traces: int


def reliability(scores: Array, right: Array, bins: int = BINS) -> list[Bin]:
    """Bins of equal width over [0, 1], those that are not empty."""
    places = np.minimum((scores * bins).astype(int), bins - 1)
    found = []
    for place in np.unique(places):
        members = places == place
        found.append(Bin(float(scores[members].mean()), float(right[members].mean()), int(members.sum())))
    return found


def calibration_error(bins: list[Bin]) -> float:
    """Expected calibration error (Naeini et al. 2015): mean distance of score and share, by traces."""
    total = sum(one.traces for one in bins)
    return sum(one.traces * abs(one.score - one.share) for one in bins) / total if total else float("nan")


def correlation(first: Array, second: Array) -> float:
    """Pearson's, of unordered pairs: each counts both ways round. NaN without a spread."""
    x, y = np.concatenate([first, second]), np.concatenate([second, first])
    x, y = x - x.mean() if len(x) else x, y - y.mean() if len(y) else y
    spread = float(np.sqrt((x**2).sum() * (y**2).sum()))
    return float((x * y).sum()) / spread if spread > 0 else float("nan")


def lowest(scores: Array, k: int) -> Array:
    """For each the chance of being among the lowest k, equal ones sharing it evenly."""
    order = np.argsort(scores, kind="stable")
    chances = np.zeros(len(scores))
    start = 0
    while start < len(order) and start < k:
        end = start + int((scores[order] == scores[order[start]]).sum())
        chances[order[start:end]] = min(1.0, (k - start) / (end - start))
        start = end
    return chances
