"""Fits a calibration: what makes a score the probability that the trace's final answer is right.

Fitted on thoughts of questions that were not trained on; the thoughts of a trace share a weight of 1. Class
weights are left out: a probability is meant for the traces as they come. What a file does with it:
`prm_worker/scorers/calibration.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from thoughtbeam.runtime.scorer_dataset_reader import Array

NONE, TEMPERATURE, ISOTONIC = "none", "temperature", "isotonic"
METHODS = (TEMPERATURE, ISOTONIC, NONE)

# Of logits whose spread is 1: a scorer that ranks at random or worse keeps its order, and hardly any spread.
_LEAST_SLOPE = 0.01
_LEAST_SPREAD = 1e-6  # of logits, by their size: below it they are one number, up to rounding in float32
_ROUNDS = 100


def fit_calibration(method: str, logits: Sequence[Array], right: Array) -> Mapping[str, Any]:
    """The entry of a scorer file. logits: per trace, [thoughts]; right: [traces]. Raises ValueError for an
    unknown method."""
    if method not in METHODS:
        raise ValueError(f"calibration: is {method!r}; must be one of {', '.join(METHODS)}")
    if method == NONE:
        return {}
    every = np.concatenate(logits).astype(np.float64)
    lengths = [len(one) for one in logits]
    labels = np.repeat(np.asarray(right, dtype=np.float64), lengths)
    weights = np.concatenate([np.full(length, 1 / length) for length in lengths if length])
    if method == TEMPERATURE:
        slope, shift = _logistic(every, labels, weights)
        return {"kind": TEMPERATURE, "temperature": 1 / slope, "bias": shift / slope}
    scores = 0.5 * (1 + np.tanh(every / 2))  # σ without an overflow
    return {"kind": ISOTONIC, **_isotonic(scores.astype(np.float32).astype(np.float64), labels, weights)}


def _logistic(x: Array, y: Array, weights: Array) -> tuple[float, float]:
    """Slope and shift of σ(slope · x + shift) with the least weighted cross-entropy, by Newton's method; on
    standardised values, so that it does not matter in which unit a scorer has its logits."""
    mean = np.average(x, weights=weights)
    spread = np.sqrt(np.average((x - mean) ** 2, weights=weights))
    if spread <= _LEAST_SPREAD * np.abs(x).max():
        spread = 1.0
    x = (x - mean) / spread
    slope, shift = _newton(np.stack([x, np.ones_like(x)]), np.zeros_like(x), y, weights)
    if slope < _LEAST_SLOPE:
        slope = _LEAST_SLOPE
        (shift,) = _newton(np.ones((1, len(x))), slope * x, y, weights)
    return float(slope / spread), float(shift - slope * mean / spread)


def _newton(features: Array, offset: Array, y: Array, weights: Array) -> Array:
    found = np.zeros(len(features))
    # what keeps separable data from an infinite slope
    ridge = 1e-6 * weights.sum() * np.eye(len(features))
    for _ in range(_ROUNDS):
        p = 0.5 * (1 + np.tanh((found @ features + offset) / 2))
        gradient = features @ (weights * (p - y)) + ridge @ found
        curvature = (features * (weights * np.maximum(p * (1 - p), 1e-9))) @ features.T + ridge
        step = np.linalg.solve(curvature, gradient)
        found = found - step * min(1.0, 5.0 / max(np.abs(step).max(), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    return found


def _isotonic(x: Array, y: Array, weights: Array) -> dict[str, list[float]]:
    """Pool adjacent violators (Barlow et al. 1972): the means of the pools, at their mean scores."""
    places, members = np.unique(x, return_inverse=True)  # equal scores are one place
    sums = [np.bincount(members, weights=weights * values) for values in (np.ones_like(x), x, y)]
    pools: list[list[float]] = []  # weight, weighted sum of scores, weighted sum of labels
    for place in range(len(places)):
        pools.append([float(one[place]) for one in sums])
        while len(pools) > 1 and _mean(pools[-2], 2) >= _mean(pools[-1], 2):
            last = pools.pop()
            pools[-1] = [mine + theirs for mine, theirs in zip(pools[-1], last, strict=True)]
    return {
        "scores": [_mean(pool, 1) for pool in pools],
        "values": [min(1.0, max(0.0, _mean(pool, 2))) for pool in pools],
    }


def _mean(pool: Sequence[float], index: int) -> float:
    return pool[index] / pool[0]
