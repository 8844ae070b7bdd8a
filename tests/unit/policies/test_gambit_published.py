"""Gambit against what its paper publishes: the accounting of a whole run, and the worked example."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from decoder_worker.answers.votes import majority
from decoder_worker.policies.base import Branch, Finish, Prune, SpawnRoot
from tests.unit.policies.driver import Driver, policy
from tree_store.model import NodeState


def live(driver: Driver) -> list[int]:
    return [trace.number for trace in driver.view.in_state(NodeState.LIVE)]


def cold_thoughts(driver: Driver, count: int) -> None:
    """So many thoughts, one after the other, spread over the traces that are not warm."""
    cold = [n for n in live(driver) if n > 40]
    for number in islice(cycle(cold), count):
        driver.think((number, 0.5), tokens=10)


@pytest.fixture(scope="module")
def published() -> Driver:
    """A run that has, by the rules alone, the counts of the published one."""
    # given the paper's parameters: C = 256, K = 16, Δ = 200, w = 12,000, N_max = 256
    driver = Driver(policy("gambit", "paper"))
    driver.start()
    # when 11 traces are warm at the first tournament, and 40 from then on
    for number in range(1, 12):
        driver.think((number, 0.9), tokens=12_000)
    cold_thoughts(driver, 200 - 11)
    for number in range(12, 41):
        driver.think((number, 0.9), tokens=12_000)
    cold_thoughts(driver, 200 - 29)
    # and traces finish in bursts of 15, one round after the other, with exchanges in between
    exchanges = 66
    for _ in range(17):
        for _ in range(min(4, exchanges)):
            cold_thoughts(driver, 200)
            exchanges -= 1
        driver.finish(*live(driver)[-15:])
        cold_thoughts(driver, 200)
    driver.finish(live(driver)[-1])
    return driver


class TestPublishedAccounting:
    """1,595 nodes = 256 roots + 1,339 branches; 1,083 pruned, 256 finished, 256 cancelled."""

    def test_counts(self, published: Driver) -> None:
        published.check_end()
        counts = published.counts
        assert counts["nodes"] == 1595
        assert (counts["roots"], counts["branches"]) == (256, 1339)
        assert (counts["pruned"], counts["finished"], counts["cancelled"]) == (1083, 256, 256)

    def test_branches_are_exchanges_and_one_refill_per_finish(self, published: Driver) -> None:
        exchanges = [r for r in published.rounds if any(isinstance(a, Prune) for a in r.actions)]
        refills = [r for r in published.rounds if r not in exchanges]
        assert [len(r.actions) for r in exchanges] == [2 * 11] + 67 * [2 * 16]
        assert sum(isinstance(a, Branch) for r in refills for a in r.actions) == 256

    def test_the_last_finish_has_its_refill_too(self, published: Driver) -> None:
        branch, finish = published.log[-1].actions
        assert isinstance(branch, Branch)
        assert isinstance(finish, Finish)


class TestWorkedExample:
    """C = 5, K = 2, two tournaments; 29 beats 52 by summed score where the majority is tied."""

    def test_action_by_action(self) -> None:
        # given five roots T1 … T5
        driver = Driver(policy("gambit", C=5, K=2, interval=10, warmup=20, N_max=4))
        assert driver.start() == (SpawnRoot(),) * 5

        # when each has passed two boundaries
        assert driver.think((1, 0.30), (2, 0.20), (3, 0.70), (4, 0.50), (5, 0.80)) == ()
        first = driver.think((1, 0.34), (2, 0.24), (3, 0.74), (4, 0.54), (5, 0.84))

        # then T2 and T1 are pruned, and T5 and T3 branched into T5.1 and T3.1
        assert first == (Prune(2), Prune(1), Branch(5), Branch(3))
        t5_1, t3_1 = driver.view[6], driver.view[7]
        assert (t5_1.parent, t5_1.mean_score) == (driver.view[5], pytest.approx(0.82))
        assert (t3_1.parent, t3_1.mean_score) == (driver.view[3], pytest.approx(0.72))

        # when each of the five has passed two more
        assert driver.think((3, 0.76), (4, 0.40), (5, 0.92), (6, 0.96), (7, 0.60)) == ()
        second = driver.think((3, 0.80), (4, 0.40), (5, 0.96), (6, 1.00), (7, 0.60))

        # then T4 and T3.1 are pruned, and T5.1 and T5 branched into T5.1.1 and T5.2
        assert second == (Prune(4), Prune(7), Branch(6), Branch(5))
        assert (driver.view[8].parent, driver.view[9].parent) == (driver.view[6], driver.view[5])

        # when four finish, two with 29 and two with 52
        assert driver.think((8, 0.90), (9, 0.28), tokens=20) == ()
        assert driver.think((9, 0.28)) == ()
        assert driver.finish(5, answer="29") == ()
        assert driver.finish(3, answer="52") == ()
        assert driver.finish(6, answer="29") == ()
        # then the last one closes a round: its place is filled first, and then the search ends
        assert driver.finish(9, answer="52") == (Branch(8), Finish())
        driver.check_end()
        assert driver.counts["cancelled"] == 2

        # then 29 wins with 1.78 against 1.43
        candidates = driver.candidates({"29": 0, "52": 1})
        votes = driver.vote({"29": 0, "52": 1}).groups
        assert [(v.group, v.weight, v.nodes) for v in votes] == [
            (0, pytest.approx(1.78), (6, 5)),
            (1, pytest.approx(1.43), (3, 9)),
        ]
        assert [v.weight for v in majority(candidates).groups] == [2, 2]
