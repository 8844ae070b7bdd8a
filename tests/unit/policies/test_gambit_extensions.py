"""What gambit's paper does not have: decorrelated vote, ghost revival, gated warm-up, uncertainty reserve."""

from __future__ import annotations

import pytest

from decoder_worker.answers.votes import weighted
from decoder_worker.policies import ParameterError
from decoder_worker.policies.base import Branch, Finish, Prune, Revive
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import RandomWorld
from tree_store.model import NodeState


def started(**overrides: object) -> Driver:
    """C = 4, K = 1, Δ = 4, w = 0, N_max = 4 unless told otherwise."""
    given = {"C": 4, "K": 1, "interval": 4, "warmup": 0, "N_max": 4, **overrides}
    driver = Driver(policy("gambit", **given))
    driver.start()
    return driver


class TestDecorrelatedVote:
    def test_by_hand(self) -> None:
        driver = started(C=3, interval=3, N_max=3, vote="decorrelated")
        # T3 is pruned, T1 branched at its 10th token into T4
        assert driver.think((1, 0.6), (2, 0.5), (3, 0.1), tokens=10) == (Prune(3), Branch(1))
        # T1 ends with 40 tokens, T4 with 20, T2 with 25
        driver.generate(1, 30)
        driver.generate(4, 10)
        driver.generate(2, 15)
        driver.finish(1, answer="29")
        driver.finish(4, answer="29")
        assert driver.finish(2, answer="52") == (Finish(),)
        # the first 10 tokens of T1 and T4 are shared by two:
        # T1 0.6 · (10/2 + 30)/40 = 0.525, T4 0.6 · (10/2 + 10)/20 = 0.45, T2 0.5
        votes = driver.vote({"29": 0, "52": 1}).groups
        assert [(v.group, v.weight, v.nodes) for v in votes] == [
            (0, pytest.approx(0.975), (1, 4)),
            (1, pytest.approx(0.5), (2,)),
        ]

    def test_equals_the_plain_one_without_branches(self) -> None:
        driver = Driver(policy("gambit", C=12, K=0, refill=False, N_max=12, vote="decorrelated"))
        play(driver, RandomWorld(seed=11))
        assert driver.counts["branches"] == 0
        groups = {"29": 0, "52": 1, "7": 2}
        assert driver.vote(groups) == weighted(driver.candidates(groups))


class TestRevival:
    def storm(self, **overrides: object) -> Driver:
        """T1 0.4, T2 0.9, T3 0.8 and T4 0.1, of which T3, T4 and T1 became ghosts."""
        driver = started(interval=100, revive_ghosts=True, high_water=0.9, **overrides)
        driver.think((1, 0.4), (2, 0.9), (3, 0.8), (4, 0.1))
        for number in (1, 3, 4):
            driver.view.move(driver.view[number], NodeState.GHOST)
        return driver

    def test_the_best_ghost_of_the_upper_half_returns_when_memory_is_free(self) -> None:
        driver = self.storm()
        assert driver.policy.check_every == 20
        # the upper half is T2 and T3
        assert driver.steps(kv_use=0.79) == (Revive(3),)
        assert driver.view[3].state is NodeState.LIVE
        # T1 and T4 are in the lower half
        assert driver.steps(kv_use=0.1) == ()

    def test_not_before_use_is_below_r_minus_the_margin(self) -> None:
        assert self.storm().steps(kv_use=0.8) == ()
        assert self.storm(revive_margin=0.3).steps(kv_use=0.61) == ()
        assert self.storm(revive_margin=0.3).steps(kv_use=0.59) == (Revive(3),)

    def test_one_at_a_time(self) -> None:
        driver = self.storm()
        driver.view.move(driver.view[2], NodeState.GHOST)
        assert driver.steps() == (Revive(2),)
        assert driver.steps() == (Revive(3),)

    def test_opens_and_takes_no_place(self) -> None:
        driver = self.storm()
        driver.steps()
        assert driver.view.capacity_count == 4

    def test_off_it_asks_for_no_steps(self) -> None:
        driver = started(interval=100)
        assert driver.policy.check_every == 0
        driver.think((1, 0.4), (2, 0.9), (3, 0.8), (4, 0.1))
        driver.view.move(driver.view[2], NodeState.GHOST)
        assert driver.steps(100) == ()

    def test_in_a_storm(self) -> None:
        """With KV for a quarter of the traces ghosts come back, and it ends."""
        driver = Driver(policy("gambit", C=32, K=4, N_max=32, revive_ghosts=True), slots=32)
        play(driver, RandomWorld(seed=3, length_mean=320), kv=32 * 20 // 4)
        driver.check_end()
        assert sum(isinstance(a, Revive) for entry in driver.log for a in entry.actions) >= 3


class TestGatedWarmup:
    """C = 4, Δ = 4, m = 2: a parent's place may not have moved by more than a quarter of the ranking."""

    def test_a_place_must_have_been_stable_over_m_thoughts(self) -> None:
        driver = started(stable_thoughts=2)
        # one thought each is less than two
        assert driver.think((1, 0.9), (2, 0.7), (3, 0.5), (4, 0.1)) == ()
        # places after the first: T1 0, T2 1/3, T3 2/3, T4 1. Means now: T1 0.65, T2 0.75, T3 0.5, T4 0.1:
        # T2 is first and moved from 1/3 to 0, T1 second and moved from 0 to 1/3, both by more than 1/4;
        # T3 and T4 are where they were, and T3 is the better of the two
        assert driver.think((1, 0.4), (2, 0.8), (3, 0.5), (4, 0.1)) == (Prune(4), Branch(3))

    def test_a_wider_tolerance(self) -> None:
        driver = started(stable_thoughts=2, stable_within=0.4)
        driver.think((1, 0.9), (2, 0.7), (3, 0.5), (4, 0.1))
        assert driver.think((1, 0.4), (2, 0.8), (3, 0.5), (4, 0.1)) == (Prune(4), Branch(2))

    def test_only_the_last_m_thoughts_count(self) -> None:
        driver = started(stable_thoughts=2)
        driver.think((1, 0.9), (2, 0.7), (3, 0.5), (4, 0.1))
        driver.think((1, 0.4), (2, 0.8), (3, 0.5), (4, 0.1))
        # T4 is pruned and T5, branched from T3, has no thought of its own yet; T2 stays where it is
        assert driver.think((1, 0.65), (2, 0.75), (3, 0.5), (3, 0.5)) == (Prune(5), Branch(2))

    def test_scores_that_come_together_are_one_place(self) -> None:
        driver = started(interval=4, stable_thoughts=2, stable_within=0.0)
        driver.think((2, 0.5), (3, 0.4))
        # T1 stood at the mean of those two, and with both its scores it stands first: not at the same place
        assert driver.think((1, 0.1), (1, 0.99)) == ()
        assert dict(driver._state.places)[1] == (0.0,)

    def test_a_branch_begins_anew(self) -> None:
        driver = started(stable_thoughts=1)
        assert driver.think((1, 0.9), (2, 0.7), (3, 0.5), (4, 0.1)) == (Prune(4), Branch(1))
        assert dict(driver._state.places).keys() == {1, 2, 3, 4}
        driver.think((2, 0.7))
        assert dict(driver._state.places).keys() == {1, 2, 3}

    def test_off_nothing_is_noted(self) -> None:
        driver = started()
        driver.think((1, 0.9), (2, 0.7))
        assert driver._state.places == ()


class TestReserve:
    def test_the_most_uncertain_are_spared(self) -> None:
        # given T4, the lowest, with one thought and T3, the next, with two: T4's score says less
        driver = started(C=5, interval=10, reserve=1)
        driver.think(*[(1, 0.9), (2, 0.5)] * 3)
        assert driver.think((3, 0.3), (3, 0.3), (5, 0.6)) == ()
        # uncertain: T4 Beta(1.2, 1.8) 0.245, T5 Beta(1.6, 1.4) 0.249, T3 Beta(1.6, 2.4) 0.219
        # then T5 alone is spared with u = 1, and T4 goes
        assert driver.think((4, 0.2)) == (Prune(4), Branch(1))

    def test_more_of_them(self) -> None:
        driver = started(C=5, interval=10, reserve=2)
        driver.think(*[(1, 0.9), (2, 0.5)] * 3)
        driver.think((3, 0.3), (3, 0.3), (5, 0.6))
        # T5 and T4 are spared: T3 goes
        assert driver.think((4, 0.2)) == (Prune(3), Branch(1))

    def test_newcomers_are_the_most_uncertain_of_all(self) -> None:
        driver = started(interval=3, reserve=1, unscored="zero")
        # T4 has no score, ranks at 0, and is spared; without the reserve it goes
        assert driver.think((1, 0.9), (2, 0.7), (3, 0.5)) == (Prune(3), Branch(1))
        driver = started(interval=3, unscored="zero")
        assert driver.think((1, 0.9), (2, 0.7), (3, 0.5)) == (Prune(4), Branch(1))

    def test_an_exchange_stays_one(self) -> None:
        # given no refill and three traces left of six: T1 is the parent, T3 more uncertain than T2
        for reserve, actions in ((0, (Prune(3), Branch(1))), (1, (Prune(2), Branch(1))), (2, ())):
            driver = started(C=6, K=2, interval=3, refill=False, reserve=reserve, N_max=6)
            driver.finish(4, 5, 6)
            assert driver.think((1, 0.9), (2, 0.7), (3, 0.5)) == actions
            assert driver.view.capacity_count == 3


@pytest.mark.parametrize(
    ("overrides", "blamed"),
    [
        ({"C": 8, "K": 3, "reserve": 3}, "reserve"),
        ({"C": 8, "K": 0, "reserve": 1}, "reserve"),
        ({"stable_thoughts": 32_768}, "stable_thoughts"),
        ({"K": 0, "refill": False, "stable_thoughts": 3}, "stable_thoughts"),
        ({"revive_ghosts": True, "high_water": 1.0}, "revive_ghosts"),
        ({"revive_ghosts": True, "high_water": 0.3, "revive_margin": 0.3}, "revive_margin"),
    ],
)
def test_what_can_never_act_is_refused(overrides: dict[str, object], blamed: str) -> None:
    with pytest.raises(ParameterError) as caught:
        policy("gambit", **overrides)
    assert [name for name, _ in caught.value.violations] == [blamed]
