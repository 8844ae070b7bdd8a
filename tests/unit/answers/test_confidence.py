"""Confidence of whole traces out of one per token, by hand and against plain loops."""

from __future__ import annotations

from array import array
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.answers.confidence import Measure, falls_below, measure, of_thought, percentile

# groups of 3: 4, 5, 3, 2, 4, 6
TRACE = [3.0, 5.0, 4.0, 6.0, -1.0, 1.0, 12.0, 5.0]


@pytest.mark.parametrize(
    ("by", "confidence"),
    [
        ("mean", 35 / 8),
        ("tail", 6.0),  # 1, 12, 5
        ("lowest", 2.0),  # 6, -1, 1
        ("bottom", 2.5),  # 2 and 3: 40 % of 6 groups are 2
    ],
)
def test_measures(by: Measure, confidence: float) -> None:
    assert measure(TRACE, by, window=3, bottom=0.4) == pytest.approx(confidence)


@pytest.mark.parametrize(
    ("tokens", "confidence"), [([4.0, 5.0], 4.5), ([0.0, 4.0, 0.0, 8.0], 6.0), ([0.0, 0.0], 0.0), ([], 0.0)]
)
def test_a_thoughts_mean_is_over_the_tokens_whose_confidence_is_known(
    tokens: list[float], confidence: float
) -> None:
    assert of_thought(tokens) == of_thought(array("f", tokens)) == confidence


def test_the_bottom_has_one_group_at_least() -> None:
    assert measure(TRACE, "bottom", window=3, bottom=0.01) == pytest.approx(2.0)
    assert measure(TRACE, "bottom", window=3, bottom=1.0) == pytest.approx(4.0)


@pytest.mark.parametrize("by", get_args(Measure))
def test_a_trace_shorter_than_a_group_has_its_mean(by: Measure) -> None:
    assert measure([1.0, 2.0, 6.0], by, window=4) == pytest.approx(3.0)
    assert measure([1.0, 2.0, 6.0], by, window=3) == pytest.approx(3.0)
    assert measure([], by, window=4) is None
    assert measure(array("f"), by, window=4) is None


@pytest.mark.parametrize(
    ("last", "threshold", "below"),
    [
        (8, 2.1, True),
        (8, 2.0, False),  # the lowest group is 2, which is not below 2
        (3, 2.1, True),  # the group 6, -1, 1 ends at the third token from the end
        (2, 2.1, False),
        (2, 4.1, True),  # -1, 1, 12
        (1, 4.1, False),
        (100, 2.1, True),
    ],
)
def test_falls_below(last: int, threshold: float, below: bool) -> None:
    assert falls_below(array("f", TRACE), threshold, window=3, last=last) == below


def test_only_full_groups_fall() -> None:
    assert not falls_below([0.0, 0.0], 5.0, window=3, last=2)
    assert not falls_below([], 5.0, window=3, last=2)


def test_equal_confidences_are_never_below_themselves() -> None:
    """Whatever rounding does: sums of thousands of equal floats."""
    for value in (0.1, 1 / 3, 7.77):
        trace = array("f", [value] * 5000)
        lowest = measure(trace, "lowest", window=777)
        assert lowest is not None
        assert not falls_below(trace, lowest, window=777, last=5000)
        assert lowest == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1.0), (25, 2.0), (50, 4.0), (90, 8.6), (10, 1.4), (100, 9.0)]
)
def test_percentile(percent: float, value: float) -> None:
    """Of 1, 2, 4, 8, 9, whatever their order; the places are 0, 1, 2, 3.6, 0.4 and 4."""
    assert percentile([8, 1, 9, 4, 2], percent) == pytest.approx(value)


def test_percentile_of_one_value() -> None:
    assert percentile([3.5], 90) == 3.5


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 40, width=32), min_size=1, max_size=60),
    st.integers(1, 70),
    st.integers(1, 70),
    st.floats(0, 40),
)
def test_against_plain_loops(trace: list[float], window: int, last: int, threshold: float) -> None:
    groups = [sum(trace[i : i + window]) / window for i in range(len(trace) - window + 1)]
    lowest = min(groups) if groups else sum(trace) / len(trace)
    assert measure(trace, "lowest", window) == pytest.approx(lowest, abs=1e-9)
    recent = groups[-last:]
    if all(abs(group - threshold) > 1e-6 for group in recent):
        assert falls_below(trace, threshold, window, last) == any(group < threshold for group in recent)
