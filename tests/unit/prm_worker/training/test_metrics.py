"""Figures of merit against examples worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prm_worker.training.calibrating import fit_calibration
from prm_worker.training.metrics import (
    Bin,
    auroc,
    calibration_error,
    correlation,
    difference_interval,
    draws,
    lowest,
    ratio_interval,
    reliability,
)


def test_auroc_counts_pairs_and_half_of_ties() -> None:
    scores = np.array([0.9, 0.4, 0.4, 0.1])
    right = np.array([True, True, False, False])
    # (0.9 > 0.4), (0.9 > 0.1), (0.4 = 0.4: half), (0.4 > 0.1)
    assert auroc(scores, right) == 3.5 / 4
    assert auroc(-scores, right) == 0.5 / 4
    assert math.isnan(auroc(scores, np.array([True] * 4)))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=20))
def test_auroc_is_what_comparing_every_pair_gives(pairs: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in pairs], dtype=float)
    right = np.array([label for _, label in pairs], dtype=bool)
    outcomes = [(good > bad) + 0.5 * (good == bad) for good in scores[right] for bad in scores[~right]]
    if outcomes:
        assert auroc(scores, right) == pytest.approx(sum(outcomes) / len(outcomes))
    else:
        assert math.isnan(auroc(scores, right))


def test_reliability_and_calibration_error_by_hand() -> None:
    scores = np.array([0.05, 0.15, 0.12, 0.95, 1.0])
    right = np.array([False, True, False, True, True])
    bins = reliability(scores, right)
    assert [(one.traces, one.share) for one in bins] == [(1, 0.0), (2, 0.5), (2, 1.0)]
    assert [one.score for one in bins] == pytest.approx([0.05, 0.135, 0.975])
    # (1 · 0.05 + 2 · 0.365 + 2 · 0.025) / 5
    assert calibration_error(bins) == pytest.approx(0.166)
    assert calibration_error([Bin(0.3, 0.3, 10)]) == 0


def test_the_lowest_k_share_a_tie_evenly() -> None:
    assert lowest(np.array([0.3, 0.1, 0.2, 0.1]), 1).tolist() == [0, 0.5, 0, 0.5]
    assert lowest(np.array([0.3, 0.1, 0.2, 0.1]), 3).tolist() == [0, 1, 1, 1]
    assert lowest(np.array([0.5] * 4), 1).tolist() == [0.25] * 4
    assert lowest(np.array([0.2, 0.1]), 5).tolist() == [1, 1]


def test_correlation_of_pairs_does_not_depend_on_their_order() -> None:
    first, second = np.array([1.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
    # all six values, both ways round: mean 1/2, products (+1 +1 −1) · 1/4 twice, squares 6 · 1/4
    assert correlation(first, second) == pytest.approx(1 / 3)
    assert correlation(second, first) == pytest.approx(1 / 3)
    assert math.isnan(correlation(np.ones(3), np.ones(3)))


def test_an_interval_holds_the_ratio_and_shrinks_with_the_data() -> None:
    random = np.random.default_rng(0)
    widths = []
    for questions in (20, 2000):
        pairs = random.integers(1, 10, questions).astype(float)
        wins = random.binomial(pairs.astype(int), 0.7).astype(float)
        low, high = ratio_interval(wins, pairs, draws(questions))
        assert low < wins.sum() / pairs.sum() < high
        widths.append(high - low)
    assert widths[1] < widths[0] / 5
    assert all(math.isnan(end) for end in ratio_interval(np.zeros(3), np.zeros(3), draws(3)))


def test_a_difference_of_two_judges_of_the_same_questions_is_sharper_than_each_alone() -> None:
    random = np.random.default_rng(1)
    pairs = np.full(200, 10.0)
    first = random.binomial(10, random.uniform(0.2, 0.9, 200)).astype(float)
    second = np.minimum(first + 1, 10)
    low, high = difference_interval(second, first, pairs, draws(200))
    assert 0.05 < low < high < 0.11
    alone = ratio_interval(first, pairs, draws(200))
    assert high - low < (alone[1] - alone[0]) / 2


# ---- calibration


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def apply(calibration: dict[str, object], logits: np.ndarray) -> np.ndarray:
    import torch

    from prm_worker.scorers.calibration import calibrated, check_calibration

    check_calibration(calibration)
    return calibrated(torch.from_numpy(logits.astype(np.float32)), calibration)


@pytest.mark.parametrize(("temperature", "bias"), [(1.0, 0.0), (2.5, -0.7), (0.4, 1.2)])
def test_a_temperature_and_a_bias_are_found_again(temperature: float, bias: float) -> None:
    random = np.random.default_rng(2)
    logits = random.normal(scale=2.0, size=40_000)
    right = random.random(40_000) < 1 / (1 + np.exp(-(logits + bias) / temperature))
    found = fit_calibration("temperature", [np.array([one]) for one in logits], right)
    assert found["temperature"] == pytest.approx(temperature, rel=0.06)
    assert found["bias"] == pytest.approx(bias, abs=0.06)


def test_a_long_trace_weighs_no_more_than_a_short_one() -> None:
    # one right trace of 100 thoughts and one wrong one of a single thought, all with the same logit
    found = fit_calibration("temperature", [np.zeros(100), np.zeros(1)], np.array([True, False]))
    assert apply(dict(found), np.zeros(1)) == pytest.approx([0.5], abs=1e-3)


def test_a_scorer_that_ranks_the_wrong_way_round_keeps_its_order_and_loses_its_spread() -> None:
    logits = [np.array([value]) for value in (3.0, 2.0, -2.0, -3.0)]
    found = dict(fit_calibration("temperature", logits, np.array([False, False, True, True])))
    scores = apply(found, np.array([3.0, -3.0]))
    assert scores[0] > scores[1]
    assert scores == pytest.approx([0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("towards", [1, -1])
def test_scores_do_not_depend_on_the_unit_of_the_logits(towards: int) -> None:
    random = np.random.default_rng(3)
    logits = random.normal(1.0, 1.5, size=4000)
    right = random.random(4000) < 1 / (1 + np.exp(-towards * logits))
    wanted = apply(dict(fit_calibration("temperature", [np.array([one]) for one in logits], right)), logits)
    for unit in (1e-4, 50.0, 1e3, 1e6):
        found = dict(fit_calibration("temperature", [np.array([unit * one]) for one in logits], right))
        assert apply(found, unit * logits) == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("logit", [0.0, 0.1, -7e4])
def test_logits_that_are_all_the_same_give_the_share_of_right_traces(logit: float) -> None:
    logits = [np.full(3, logit, np.float32)] * 5
    right = np.array([True, False, False, False, True])
    found = dict(fit_calibration("temperature", logits, right))
    assert apply(found, np.full(1, logit)) == pytest.approx([0.4], abs=1e-3)


def test_separable_traces_do_not_give_an_endless_slope() -> None:
    logits = [np.array([value]) for value in (2.0, 1.0, -1.0, -2.0)]
    found = dict(fit_calibration("temperature", logits, np.array([True, True, False, False])))
    assert math.isfinite(found["temperature"])
    assert found["temperature"] > 0
    assert np.isfinite(apply(found, np.array([5.0, -5.0]))).all()


def test_isotonic_pools_by_hand() -> None:
    # labels 0 1 0 1 at rising scores: the middle two are pooled to 1/2
    scores = (0.1, 0.3, 0.5, 0.9)
    found = fit_calibration(
        "isotonic", [np.array([logit(p)]) for p in scores], np.array([False, True, False, True])
    )
    assert found["scores"] == pytest.approx([0.1, 0.4, 0.9], abs=1e-6)
    assert found["values"] == pytest.approx([0.0, 0.5, 1.0])
    assert apply(dict(found), np.array([logit(0.25)])) == pytest.approx([0.25], abs=1e-3)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=1, max_size=30))
def test_isotonic_is_a_calibration_that_a_file_may_hold(items: list[tuple[int, bool]]) -> None:
    logits = [np.array([float(value)]) for value, _ in items]
    right = np.array([label for _, label in items])
    scores = apply(dict(fit_calibration("isotonic", logits, right)), np.linspace(-8, 8, 50))
    assert (np.diff(scores) >= 0).all()
    assert ((scores >= 0) & (scores <= 1)).all()


def test_no_calibration_and_an_unknown_one() -> None:
    assert fit_calibration("none", [np.zeros(1)], np.array([True])) == {}
    with pytest.raises(
        ValueError, match="calibration: is 'magic'; must be one of temperature, isotonic, none"
    ):
        fit_calibration("magic", [np.zeros(1)], np.array([True]))
