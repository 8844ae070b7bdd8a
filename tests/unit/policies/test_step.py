"""STEP: prunes under memory pressure only, and gambit's evictions in another guise."""

from __future__ import annotations

import random

import pytest

from decoder_worker.policies.base import Evict, Finish, Prune, SpawnRoot
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import RandomWorld


def test_worked_example() -> None:
    """Five traces, two pressures, one vote.

    s̄ at the first pressure: T1 (0.9 + 0.7) / 2 = 0.8, T2 0.5, T3 0.3, T4 none, T5 0.6.
    The scored ones' mean is (0.8 + 0.5 + 0.3 + 0.6) / 4 = 0.55: T4 ranks there, above T2.
    """
    driver = Driver(policy("step", N=5))
    assert driver.start() == (SpawnRoot(),) * 5
    # scores alone do nothing, however low
    assert driver.think((1, 0.9), (2, 0.5), (3, 0.3), (5, 0.6)) == ()
    assert driver.think((1, 0.7)) == ()
    # 4 blocks are wanted: T3 gives 2, so T2 follows with 3; 5 are enough
    assert driver.press(4, {1: 4, 2: 3, 3: 2, 4: 2, 5: 3}) == (Prune(3), Prune(2))
    # T4's first thought takes it to 0.2: it is the lowest now
    assert driver.think((4, 0.2)) == ()
    assert driver.press(1, {1: 5, 4: 3, 5: 4}) == (Prune(4),)
    # nothing takes the places of the pruned; the vote is weighted: 0.8 against (0.6 + 0.8) / 2 = 0.7
    assert driver.finish(1, answer="29") == ()
    assert driver.think((5, 0.8)) == ()
    assert driver.finish(5, answer="52") == (Finish(),)
    driver.check_end()
    assert driver.counts["pruned"] == 3
    votes = driver.vote({"29": 0, "52": 1}).groups
    assert [(v.group, v.weight, v.nodes) for v in votes] == [
        (0, pytest.approx(0.8), (1,)),
        (1, pytest.approx(0.7), (5,)),
    ]


def test_the_original_ranks_newcomers_at_zero() -> None:
    for unscored, lowest in (("mean", 2), ("zero", 3)):
        driver = Driver(policy("step", N=3, unscored=unscored))
        driver.start()
        driver.think((1, 0.9), (2, 0.1))
        assert driver.press(1, {1: 1, 2: 1, 3: 1}) == (Prune(lowest),)


def test_the_last_live_trace_stays() -> None:
    driver = Driver(policy("step", N=3))
    driver.start()
    assert driver.press(1000) == (Prune(3), Prune(2))
    assert driver.press(1000) == ()


def test_a_pruned_trace_does_not_vote() -> None:
    driver = Driver(policy("step", N=3))
    driver.start()
    driver.think((1, 0.2), (2, 0.1), (3, 0.1))
    driver.press(2, {1: 1, 2: 1, 3: 1})
    driver.finish(1, answer="29")
    assert [v.nodes for v in driver.vote({"29": 0}).groups] == [(1,)]


@pytest.mark.parametrize("seed", range(8))
def test_prunes_in_the_order_in_which_gambit_evicts(seed: int) -> None:
    """Gambit with K = 0 and no refill, at the same water mark, and the same things happen to both."""
    shared = {"high_water": 0.8}
    step = Driver(policy("step", N=12, **shared))
    gambit = Driver(policy("gambit", C=12, K=0, refill=False, N_max=12, **shared))
    rng = random.Random(seed)
    for driver in (step, gambit):
        driver.start()
    gone: list[int] = []
    while len(gone) < 11:
        live = [n for n in range(1, 13) if n not in gone]
        thinking = [(n, rng.random()) for n in rng.sample(live, min(len(live), 4))]
        blocks, held = rng.randint(1, 6), {n: rng.randint(1, 3) for n in live}
        for driver in (step, gambit):
            driver.think(*thinking)
        pruned = [a.node for a in step.press(blocks, held) if isinstance(a, Prune)]
        evicted = [a.node for a in gambit.press(blocks, held) if isinstance(a, Evict)]
        assert pruned == evicted
        assert pruned
        gone += pruned


def test_a_memory_for_half_of_the_traces() -> None:
    driver = Driver(policy("step", N=24), slots=24)
    play(driver, RandomWorld(seed=7), kv=300)
    driver.check_end()
    assert driver.counts["pruned"] > 4
    assert driver.counts["finished"] > 0
