"""vanilla, self_consistency and best_of_n: N roots, no interference, one vote."""

from __future__ import annotations

import pytest

from decoder_worker.policies.base import Finish, SpawnRoot
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import RandomWorld

GROUPS = {"29": 0, "52": 1}


@pytest.mark.parametrize(
    ("name", "overrides", "n"),
    [("vanilla", {}, 1), ("self_consistency", {"N": 5}, 5), ("best_of_n", {"N": 7}, 7)],
)
def test_spawns_n_roots_and_ends_with_the_last_of_them(
    name: str, overrides: dict[str, object], n: int
) -> None:
    driver = Driver(policy(name, **overrides))
    assert driver.policy.capacity == n
    assert driver.start() == (SpawnRoot(),) * n
    for number in range(1, n):
        driver.think((number, 0.1))
        assert driver.finish(number) == ()
    assert driver.finish(n) == (Finish(),)
    driver.check_end()
    assert driver.counts["finished"] == n


@pytest.mark.parametrize("name", ["vanilla", "self_consistency", "best_of_n"])
def test_leaves_memory_pressure_to_the_engine(name: str) -> None:
    driver = Driver(policy(name))
    assert driver.policy.high_water == 1.0
    driver.start()
    assert driver.press(1000) == ()


def test_ends_when_the_engine_is_idle() -> None:
    driver = Driver(policy("self_consistency", N=2))
    driver.start()
    driver.finish(1, 2)
    assert driver.ended

    resumed = Driver(policy("self_consistency", N=2))
    assert resumed.check_idle() == (Finish(),)


def test_fewer_slots_than_traces() -> None:
    driver = Driver(policy("self_consistency", N=9), slots=2)
    play(driver, RandomWorld(seed=5))
    driver.check_end()
    assert driver.counts["finished"] == 9


def finished(name: str, **overrides: object) -> Driver:
    """29 from two middling traces, 52 from the best by mean, last and minimum in turn."""
    driver = Driver(policy(name, N=4, **overrides))
    driver.start()
    driver.think((1, 0.6), (2, 0.6), (3, 0.95), (4, 0.1))
    driver.think((1, 0.7), (2, 0.6), (3, 0.5), (4, 0.9))
    driver.finish(1, 2, answer="29")
    driver.finish(3, answer="52")
    driver.finish(4)
    return driver


def test_self_consistency_counts_heads() -> None:
    votes = finished("self_consistency").vote(GROUPS).groups
    assert [(v.group, v.weight, v.nodes) for v in votes] == [(0, 2, (1, 2)), (1, 1, (3,))]


@pytest.mark.parametrize(
    ("by", "group", "node", "score"), [("mean", 1, 3, 0.725), ("last", 0, 1, 0.7), ("min", 0, 1, 0.6)]
)
def test_best_of_n_takes_the_best_trace(by: str, group: int, node: int, score: float) -> None:
    winner = finished("best_of_n", by=by).vote(GROUPS).winner
    assert winner is not None
    assert (winner.group, winner.nodes[0], winner.weight) == (group, node, pytest.approx(score))
