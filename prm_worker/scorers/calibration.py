"""From a scorer's logits to scores that can be read as probabilities, as its file says.

{}: σ(logit). temperature: σ((logit + bias) / temperature) (Platt; Guo et al., arXiv 1706.04599). isotonic:
piecewise linear through (scores, values), of σ(logit); beyond the ends constant (Zadrozny and Elkan 2002).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prm_worker.scorers.base import Float32Array


def calibrated(logits: Tensor, calibration: Mapping[str, Any]) -> Float32Array:
    """Scores in [0, 1], float32, of logits of any shape; NaN stays NaN. `calibration` has been checked."""
    logits = logits.detach().float()
    if calibration.get("kind") == "temperature":
        logits = (logits + calibration["bias"]) / calibration["temperature"]
    scores: Float32Array = torch.sigmoid(logits).cpu().numpy()
    if calibration.get("kind") == "isotonic":
        # of one point only, interp makes a number of what is none
        mapped = np.interp(scores, calibration["scores"], calibration["values"])
        scores = np.where(np.isnan(scores), scores, mapped).astype(np.float32)
    return scores


def check_calibration(calibration: Mapping[str, Any]) -> None:
    """Raises ValueError naming the entry that cannot be used, and what it must be."""
    if not calibration:
        return
    kind = calibration.get("kind")
    if kind == "temperature":
        _check_keys(calibration, {"kind", "temperature", "bias"})
        for name in ("temperature", "bias"):
            _check_number(name, calibration[name])
        if calibration["temperature"] <= 0:
            raise ValueError(f"temperature is {calibration['temperature']}; it must be above 0")
    elif kind == "isotonic":
        _check_keys(calibration, {"kind", "scores", "values"})
        scores, values = (_numbers(name, calibration[name]) for name in ("scores", "values"))
        if len(scores) != len(values) or not scores:
            raise ValueError(
                f"scores has {len(scores)} entries and values {len(values)}; they must have the same number, "
                "at least 1"
            )
        if any(later <= earlier for earlier, later in pairwise(scores)):
            raise ValueError("scores must increase from entry to entry")
        if any(later < earlier for earlier, later in pairwise(values)):
            raise ValueError("values must not decrease from entry to entry")
        if not all(0 <= value <= 1 for value in values):
            raise ValueError("values must lie in [0, 1]")
    else:
        raise ValueError(f"kind is {kind!r}; it must be temperature or isotonic")


def _check_keys(calibration: Mapping[str, Any], wanted: set[str]) -> None:
    if set(calibration) != wanted:
        raise ValueError(f"has {', '.join(map(str, calibration))}; it must have {', '.join(sorted(wanted))}")


def _numbers(name: str, value: object) -> Sequence[float]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"{name} is a {type(value).__name__}; it must be a list of numbers")
    for index, number in enumerate(value):
        _check_number(f"{name}[{index}]", number)
    return value


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}; it must be a finite number")
