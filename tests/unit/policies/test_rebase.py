"""REBASE: rounds over held traces, by hand, and its arithmetic at the edges."""

from __future__ import annotations

import math

import pytest

from decoder_worker.policies.base import Branch, Finish, Prune, Resume, SpawnRoot
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import ConstantWorld, RandomWorld
from tree_store.model import NodeState

GROUPS = {"29": 0, "52": 1}

# with this τ, e^(r/τ) = 2^(10 r): 32 for r = 0.5, 16 for 0.4, 8 for 0.3, 4 for 0.2
HALVING = 0.1 / math.log(2)


def started(width: int, slots: int | None = None, **overrides: object) -> Driver:
    given = {"W": width, "tau": HALVING, "reward": "last", "vote": "last", **overrides}
    driver = Driver(policy("rebase", **given), slots=slots)
    driver.start()
    return driver


def round_of(driver: Driver, *scored: tuple[int, float]) -> tuple[object, ...]:
    """All live traces pass a boundary; nothing happens before the last score is there."""
    assert driver.think(*scored) == ()
    assert not driver.view.count(NodeState.LIVE, NodeState.PENDING)
    return driver.check_idle()


class TestWorkedExample:
    """W = 6, e^(r/τ) = 2^(10 r), the last score is the reward and the weight of the vote."""

    def test_action_by_action(self) -> None:
        driver = Driver(policy("rebase", W=6, tau=HALVING, reward="last", vote="last"))
        assert driver.start() == (SpawnRoot(),) * 6

        # 32, 16, 16, 8, 4, 4: Σ = 80, W = 6
        # T1 ⌈6·32/80⌉ = ⌈2.4⌉ = 3     leaves W = 3, Σ = 48
        # T2 ⌈3·16/48⌉ = 1             leaves W = 2, Σ = 32
        # T3 ⌈2·16/32⌉ = 1             leaves W = 1, Σ = 16
        # T4 ⌈1·8/16⌉ = ⌈0.5⌉ = 1      leaves W = 0: none for T5 and T6
        first = round_of(driver, (1, 0.5), (2, 0.4), (3, 0.4), (4, 0.3), (5, 0.2), (6, 0.2))
        assert first == (
            *(Prune(5), Prune(6)),
            *(Branch(1), Branch(1), Resume(1)),
            *(Resume(2), Resume(3), Resume(4)),
        )
        assert [driver.view[n].parent for n in (7, 8)] == [driver.view[1]] * 2
        assert driver.view.capacity_count == 6

        # T4 finishes: a width of 5 is left
        assert driver.finish(4, answer="29") == ()
        # 8, 32, 4, 16, 4: Σ = 64, sorted T2, T7, T1, T3, T8
        # T2 ⌈5·32/64⌉ = ⌈2.5⌉ = 3     leaves W = 2, Σ = 32
        # T7 ⌈2·16/32⌉ = 1             leaves W = 1, Σ = 16
        # T1 ⌈1·8/16⌉ = 1              leaves W = 0: none for T3 and T8
        second = round_of(driver, (1, 0.3), (2, 0.5), (3, 0.2), (7, 0.4), (8, 0.2))
        assert second == (
            *(Prune(3), Prune(8)),
            *(Branch(2), Branch(2), Resume(2)),
            *(Resume(7), Resume(1)),
        )

        # all but T1 finish: W = 6 − 5 = 1, which is T1's whatever it is worth
        assert driver.finish(2, 9, answer="52") == ()
        assert driver.finish(7, 10, answer="29") == ()
        assert round_of(driver, (1, 0.0)) == (Resume(1),)
        assert driver.finish(1, answer="29") == ()
        assert driver.check_idle() == (Finish(),)
        driver.check_end()
        assert driver.counts == driver.counts | {"finished": 6, "pruned": 4, "branches": 4, "cancelled": 0}

        # last scores: 29 has T4 0.3, T7 0.4, T10 0.5 (T2's, inherited) and T1 0.0; 52 has T2 and T9, 0.5 each
        votes = driver.vote(GROUPS).groups
        assert [(v.group, v.weight, v.nodes) for v in votes] == [
            (0, pytest.approx(1.2), (10, 7, 4, 1)),
            (1, pytest.approx(1.0), (2, 9)),
        ]


class TestRounds:
    def test_wait_for_the_last_score(self) -> None:
        driver = started(2)
        driver.boundary(1, 10)
        driver.deliver((1, 0.5))
        assert driver.check_idle() == ()  # T2 is live
        driver.boundary(2, 10)
        assert driver.check_idle() == ()  # its score is on its way
        driver.deliver((2, 0.5))
        assert driver.check_idle() == (Resume(1), Resume(2))

    def test_with_fewer_slots_than_traces(self) -> None:
        driver = started(3, slots=1)
        for number in (1, 2, 3):
            assert driver.check_idle() == ()
            driver.think((number, 0.5))
        assert driver.check_idle() == (Resume(1), Resume(2), Resume(3))

    def test_nothing_is_decoded_past_the_boundary(self) -> None:
        driver = started(2)
        round_of(driver, (1, 0.9), (2, 0.1))
        branch, parent = driver.view[3], driver.view[1]
        assert branch.branch_position == parent.total_tokens == 10
        assert branch.sequence() == parent.sequence()

    def test_are_recorded(self) -> None:
        driver = started(2)
        round_of(driver, (1, 0.9), (2, 0.1))
        assert len(driver.rounds) == 1

    def test_end_when_all_are_at_the_depth_limit(self) -> None:
        driver = started(2, depth=2)
        assert round_of(driver, (1, 0.4), (2, 0.4)) == (Resume(1), Resume(2))
        assert round_of(driver, (1, 0.4), (2, 0.4)) == (Prune(1), Prune(2), Finish())

    def test_inherited_thoughts_count_for_the_depth(self) -> None:
        driver = started(2, depth=2)
        assert round_of(driver, (1, 0.5), (2, 0.2)) == (Prune(2), Branch(1), Resume(1))
        assert round_of(driver, (1, 0.4), (3, 0.4)) == (Prune(1), Prune(3), Finish())


class TestRewards:
    def test_equal_ones_share_out_equally(self) -> None:
        driver = started(7)
        assert round_of(driver, *((n, 0.1) for n in range(1, 8))) == tuple(Resume(n) for n in range(1, 8))

    def test_each_share_is_of_what_is_left(self) -> None:
        driver = started(4)
        # 32, 32, 4, 4: Σ = 72; T1 ⌈4·32/72⌉ = ⌈1.8⌉ = 2, then T2 ⌈2·32/40⌉ = ⌈1.6⌉ = 2, where of the first Σ
        # it would be ⌈2·32/72⌉ = ⌈0.9⌉ = 1
        actions = round_of(driver, (1, 0.5), (2, 0.5), (3, 0.2), (4, 0.2))
        assert actions == (Prune(3), Prune(4), Branch(1), Resume(1), Branch(2), Resume(2))

    def test_far_apart_ones_give_everything_to_the_best(self) -> None:
        driver = started(4, tau=0.001)
        actions = round_of(driver, (1, 0.0), (2, 1.0), (3, 0.5), (4, 0.0))
        assert actions == (Prune(1), Prune(3), Prune(4), Branch(2), Branch(2), Branch(2), Resume(2))

    def test_a_trace_whose_last_thought_has_no_score_goes_on_once_at_the_mean(self) -> None:
        driver = started(4)
        for number in range(1, 5):
            driver.boundary(number, 10)
        # T2's row is refused: (0.5 + 0.2 + 0.2) / 3 = 0.3; 32, 8, 4, 4: Σ = 48
        # T1 ⌈4·32/48⌉ = 3, then T2 ⌈1·8/16⌉ = 1
        driver.deliver((1, 0.5), (2, None), (3, 0.2), (4, 0.2))
        assert driver.check_idle() == (Prune(3), Prune(4), Branch(1), Branch(1), Resume(1), Resume(2))

    def test_an_older_score_does_not_stand_for_the_thought_that_has_none(self) -> None:
        driver = started(4, reward="last")
        assert round_of(driver, *((n, 1.0) for n in range(1, 5))) == tuple(Resume(n) for n in range(1, 5))
        for number in range(1, 5):
            driver.boundary(number, 10)
        # T2 stands at the mean of the others, 0.3, as in the test before, and not first at 1.0
        driver.deliver((1, 0.5), (2, None), (3, 0.2), (4, 0.2))
        assert driver.check_idle() == (Prune(3), Prune(4), Branch(1), Branch(1), Resume(1), Resume(2))

    def test_without_any_score_everyone_goes_on(self) -> None:
        driver = started(3)
        for number in range(1, 4):
            driver.boundary(number, 10)
        driver.deliver(*((number, None) for number in range(1, 4)))
        assert driver.check_idle() == (Resume(1), Resume(2), Resume(3))

    @pytest.mark.parametrize(("by", "best"), [("last", 1), ("min", 2), ("mean", 3), ("product", 2)])
    def test_by(self, by: str, best: int) -> None:
        # last .9 .6 .8, min .2 .6 .3, mean .4 .6 .63, product .04 .216 .192
        driver = started(3, reward=by, tau=0.01)
        scores = {1: (0.2, 0.2, 0.9), 2: (0.6, 0.6, 0.6), 3: (0.8, 0.3, 0.8)}
        for i in range(2):
            for number in scores:
                driver.boundary(number, 10)
                driver.deliver((number, scores[number][i]))
                driver.view.move(driver.view[number], NodeState.PENDING)
                driver.view.move(driver.view[number], NodeState.LIVE)
        actions = round_of(driver, *((number, given[2]) for number, given in scores.items()))
        assert Branch(best) in actions
        assert sum(isinstance(a, Prune) for a in actions) == 2 or by == "mean"


def test_the_width_is_never_exceeded_and_always_used() -> None:
    """After each round as many traces go on as the width has left, however many finish in between."""
    driver = Driver(policy("rebase"), slots=9)
    play(driver, RandomWorld(seed=2, refused=0.0))
    driver.check_end()
    counts = driver.counts
    assert counts["finished"] == 24
    assert counts["branches"] == counts["pruned"] > 0
    assert counts["cancelled"] == 0


def test_equal_rewards_leave_w_independent_traces() -> None:
    driver = Driver(policy("rebase"), slots=24)
    play(driver, ConstantWorld(seed=2))
    driver.check_end()
    assert (driver.counts["nodes"], driver.counts["finished"]) == (24, 24)
