"""Intervals of benchmarks."""

from __future__ import annotations

import random

from bench.report import median_interval, quantile


def test_the_interval_of_a_median_holds_it_as_often_as_it_says() -> None:
    draw = random.Random(0)
    for count in (8, 12, 25):
        held = 0
        for _ in range(2000):
            low, high = median_interval([draw.expovariate(1.0) for _ in range(count)])
            held += low <= 0.6931 <= high
        assert 0.945 <= held / 2000 <= 0.999, count


def test_few_values_give_the_widest_interval() -> None:
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert median_interval([1.0]) == (1.0, 1.0)
    # 12 values: with the 3rd to the 10th the median lies outside with 3.9 %, with the 4th to the 9th 14.6 %
    assert median_interval([float(n) for n in range(1, 13)]) == (3.0, 10.0)


def test_quantiles_lie_between_the_values() -> None:
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.25) == 1.25
