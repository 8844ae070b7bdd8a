"""What a scorer file may say about calibration, and what it means at the ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prm_worker.scorers.calibration import calibrated, check_calibration


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        ({"temperature": 1.0}, "kind is None; it must be temperature or isotonic"),
        ({"kind": "temperature", "temperature": 1.0}, "has kind, temperature; it must have bias, kind, temp"),
        ({"kind": "temperature", "temperature": 0.0, "bias": 0.0}, "temperature is 0.0; it must be above 0"),
        ({"kind": "temperature", "temperature": "1", "bias": 0.0}, "temperature is '1'; it must be a finite"),
        ({"kind": "temperature", "temperature": 1.0, "bias": float("nan")}, "bias is nan"),
        ({"kind": "isotonic", "scores": [], "values": []}, "scores has 0 entries"),
        ({"kind": "isotonic", "scores": [0.1, 0.2], "values": [0.5]}, "must have the same number"),
        ({"kind": "isotonic", "scores": [0.2, 0.2], "values": [0.1, 0.2]}, "scores must increase"),
        ({"kind": "isotonic", "scores": [0.1, 0.2], "values": [0.2, 0.1]}, "values must not decrease"),
        ({"kind": "isotonic", "scores": [0.1, 0.2], "values": [0.2, 1.1]}, r"values must lie in \[0, 1\]"),
        ({"kind": "isotonic", "scores": [0.1, None], "values": [0.2, 0.3]}, r"scores\[1\] is None"),
        ({"kind": "isotonic", "scores": "01", "values": [0.2, 0.3]}, "scores is a str"),
    ],
)
def test_what_cannot_be_used_is_named(calibration: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_calibration(calibration)


@st.composite
def calibrations(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        temperature, bias = draw(st.floats(0.01, 100)), draw(st.floats(-20, 20))
        return {"kind": "temperature", "temperature": temperature, "bias": bias}
    scores = sorted(draw(st.sets(st.floats(0, 1, width=32), min_size=1, max_size=8)))
    values = sorted(draw(st.lists(st.floats(0, 1, width=32), min_size=len(scores), max_size=len(scores))))
    return {"kind": "isotonic", "scores": scores, "values": values}


@given(calibration=calibrations(), logits=st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=20))
def test_calibrated_scores_lie_in_0_to_1_and_keep_the_order(
    calibration: dict[str, Any], logits: list[float]
) -> None:
    check_calibration(calibration)
    scores = calibrated(torch.tensor(sorted(logits)), calibration)
    assert scores.dtype == np.float32
    assert ((scores >= 0) & (scores <= 1)).all()
    assert (np.diff(scores) >= -1e-6).all()


@pytest.mark.parametrize(
    "calibration",
    [
        {},
        {"kind": "temperature", "temperature": 2.0, "bias": 0.0},
        {"kind": "isotonic", "scores": [0.5], "values": [0.25]},
    ],
)
def test_what_is_not_a_number_stays_so(calibration: dict[str, Any]) -> None:
    scores = calibrated(torch.tensor([float("nan"), 0.0]), calibration)
    assert np.isnan(scores).tolist() == [True, False]
