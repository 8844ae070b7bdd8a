"""Intervals of benchmarks."""

from __future__ import annotations

import random
from math import log

import pytest

from bench.report import quantile, quantile_interval


@pytest.mark.parametrize(("q", "count"), [(0.5, 8), (0.5, 12), (0.5, 25), (0.9, 60), (0.97, 200)])
def test_the_interval_of_a_quantile_holds_it_as_often_as_it_says(q: float, count: int) -> None:
    draw, held = random.Random(0), 0
    for _ in range(2000):
        low, high = quantile_interval([draw.expovariate(1.0) for _ in range(count)], q)
        held += low <= -log(1 - q) <= high
    assert 0.94 <= held / 2000 <= 0.999


def test_few_values_give_the_widest_interval() -> None:
    assert quantile_interval([3.0, 1.0, 2.0], 0.5) == (1.0, 3.0)
    assert quantile_interval([1.0], 0.5) == (1.0, 1.0)
    # 12 values: with the 3rd to the 10th the median lies outside with 3.9 %, with the 4th to the 9th 14.6 %
    assert quantile_interval([float(n) for n in range(1, 13)], 0.5) == (3.0, 10.0)
    # P97 lies above the largest of 79 with 9 %, below the 74th with 3.2 % and below the 73rd with 1.0 %
    assert quantile_interval([float(n) for n in range(1, 80)], 0.97) == (73.0, 79.0)


def test_quantiles_lie_between_the_values() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
