"""How sure a model was of a thought or a whole trace, out of one confidence per token (DeepConf, arXiv
2508.15260).

A token's confidence is minus the mean log-probability of the top 20 tokens at its place. A group is a sliding
window of tokens, its confidence their mean; only full windows count. A trace that is shorter than one window
has its overall mean instead. Where the engine does not know a token's confidence, because its logits are not
finite, it says 0, which counts as such in groups and traces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Literal

import numpy as np

Measure = Literal["mean", "tail", "bottom", "lowest"]


def of_thought(confidences: Sequence[float]) -> float:
    """Mean over a thought's tokens. A token's confidence is 0 where the engine does not know it, which says
    nothing of the model: it is left out. 0 where none is known."""
    known = [value for value in confidences if value > 0]
    return fmean(known) if known else 0.0


def measure(confidences: Sequence[float], by: Measure, window: int, bottom: float = 0.1) -> float | None:
    """A trace's confidence; None without any token.

    by: `mean` over all tokens; `tail` over the last `window` tokens; `lowest`: of the lowest group; `bottom`:
    mean over the lowest share `bottom` of the groups, at least one of them.
    """
    if not len(confidences):
        return None
    if by == "tail":
        return float(_doubles(confidences[-window:]).mean())
    groups = _groups(confidences, window)
    if by == "mean" or not len(groups):
        return float(_doubles(confidences).mean())
    if by == "lowest":
        return float(groups.min())
    lowest = max(1, math.floor(len(groups) * bottom))
    return float(np.sort(groups)[:lowest].mean())


def falls_below(confidences: Sequence[float], threshold: float, window: int, last: int) -> bool:
    """Whether a full group that ends within the last `last` tokens is below the threshold."""
    groups = _groups(confidences[-(window + last - 1) :], window)
    return bool(len(groups)) and bool(groups.min() < threshold)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many percent lie; between two values in proportion. values: at least one."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _groups(confidences: Sequence[float], window: int) -> Any:
    """Confidence of each full window, in order."""
    sums = np.concatenate(([0.0], np.cumsum(_doubles(confidences))))
    return (sums[window:] - sums[:-window]) / window


def _doubles(confidences: Sequence[float]) -> Any:
    return np.asarray(confidences, dtype=np.float64)
