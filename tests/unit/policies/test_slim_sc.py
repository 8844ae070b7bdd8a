"""Slim-SC: which thoughts are compared, which of two traces goes, and the vote, by hand."""

from __future__ import annotations

import pytest

from decoder_worker.policies.base import Finish, Prune, SpawnRoot
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import ConstantWorld, RandomWorld, SilentWorld
from tree_store.model import NodeState

GROUPS = {"29": 0, "52": 1}

# vectors with easy cosines: EAST·NEAR = 0.96, EAST·FAR = 0.8, NEAR·FAR = 0.936, UP is at right angles to all
EAST, NEAR, FAR, UP = (1.0, 0.0, 0.0), (0.96, 0.28, 0.0), (0.8, 0.6, 0.0), (0.0, 0.0, 1.0)


def started(n: int, seed: int = 0, **overrides: object) -> Driver:
    """From the second thought on, at a cosine of 0.95, unless told otherwise."""
    given = {"N": n, "threshold": 0.95, "start_after": 1, "pruning": "diversity", **overrides}
    driver = Driver(policy("slim_sc", **given), seed=seed)
    driver.start()
    return driver


class TestWorkedExample:
    """N = 5, threshold 0.95, thoughts compared from index 1 on with those at index ± 1; diversity."""

    def test_action_by_action(self) -> None:
        driver = started(5)
        assert driver.log[0].actions == (SpawnRoot(),) * 5
        assert driver.policy.needs_embeddings

        # the first thoughts are the same and are not compared
        assert driver.embed(*((n, 0, UP) for n in range(1, 6))) == ()
        # T1's second one is at right angles to all the first ones, T2's at 0.8 to T1's
        assert driver.embed((1, 1, EAST)) == ()
        assert driver.embed((2, 1, FAR)) == ()
        # T3's is at 0.96 to T1's and at 0.936 to T2's: one of T1 and T3 goes. To the rest, T2, T4 and T5, T3
        # has (0.936 + 0 + 0) / 3 = 0.312 and T1 (0.8 + 0 + 0) / 3 = 0.267: T3 goes
        assert driver.embed((3, 1, NEAR)) == (Prune(3),)
        # T4's third thought is T1's second. To the rest, T2 and T5, T4 has 0.8 (T5 has nothing at index
        # 2 ± 1), T1 has (0.8 + 0) / 2 = 0.4: T4 goes
        assert driver.embed((4, 1, UP), (4, 2, EAST)) == (Prune(4),)
        # T5's second thought is T2's, and both have 0.8 to T1: the higher number goes
        assert driver.embed((5, 1, FAR)) == (Prune(5),)

        # one vote each; two were pruned into T1's group (T3, T4) and one into T2's (T5), which finished first
        assert driver.finish(2, answer="52") == ()
        assert driver.finish(1, answer="29") == (Finish(),)
        driver.check_end()
        votes = driver.vote(GROUPS).groups
        assert [(v.group, v.weight, v.nodes) for v in votes] == [(0, 1, (1,)), (1, 1, (2,))]


class TestComparison:
    def test_needs_the_threshold(self) -> None:
        for threshold, actions in ((0.96, (Prune(2),)), (0.961, ())):
            driver = started(2, threshold=threshold)
            driver.embed((1, 1, EAST))
            assert driver.embed((2, 1, NEAR)) == actions

    def test_is_by_angle_not_by_length(self) -> None:
        driver = started(2, threshold=1.0)
        driver.embed((1, 1, (3.0, 0.3, 0.1)))
        assert driver.embed((2, 1, (30.0, 3.0, 1.0))) == (Prune(2),)

    def test_a_vector_of_length_0_is_like_nothing(self) -> None:
        driver = started(2)
        driver.embed((1, 1, (0.0, 0.0)))
        assert driver.embed((2, 1, (0.0, 0.0))) == ()

    @pytest.mark.parametrize(("index", "compared"), [(1, False), (2, True), (3, True), (4, True), (5, False)])
    def test_of_indices_close_to_each_other(self, index: int, compared: bool) -> None:
        driver = started(2)
        driver.embed((1, 3, EAST))
        assert bool(driver.embed((2, index, EAST))) == compared

    def test_only_with_running_traces(self) -> None:
        driver = started(3)
        driver.embed((1, 1, EAST))
        driver.finish(1)
        assert driver.embed((2, 1, EAST)) == ()
        # a vector that comes when its own trace has ended
        driver.finish(2)
        assert driver.embed((3, 1, EAST), (2, 2, EAST)) == ()

    def test_a_thought_like_several_others(self) -> None:
        # T4 is like T1, T2 and T3, which have not been compared with each other (they came too early)
        driver = started(4, start_after=2)
        driver.embed((1, 1, EAST), (2, 1, EAST), (3, 1, EAST))
        # all are as similar to the rest as each other: the higher number of each pair goes, T4 of (T1, T4)
        assert driver.embed((4, 2, EAST)) == (Prune(4),)

    def test_a_thought_that_stays_is_compared_further(self) -> None:
        # T1 is nearest to T2, then to T3; T1 is the least similar to the rest and stays
        driver = started(3, threshold=0.7, start_after=2)
        driver.embed((2, 1, NEAR), (3, 1, FAR))
        # (T1, T2): to T3, T1 has 0.8 and T2 0.936: T2 goes. (T1, T3): no rest, the higher number goes
        assert driver.embed((1, 2, EAST)) == (Prune(2), Prune(3))

    def test_several_vectors_at_once(self) -> None:
        driver = started(4)
        assert driver.embed(*((n, 1, EAST) for n in range(1, 5))) == (Prune(2), Prune(3), Prune(4))
        assert driver.view.count(NodeState.LIVE) == 1


class TestRandom:
    def pruned(self, seed: int) -> list[int]:
        driver = started(8, seed=seed, pruning="random")
        gone = []
        for number in range(1, 9):
            gone += [a.node for a in driver.embed((number, 1, EAST)) if isinstance(a, Prune)]
        assert driver.view.count(NodeState.LIVE) == 1
        return gone

    def test_is_fixed_by_the_seed(self) -> None:
        assert self.pruned(5) == self.pruned(5)

    def test_takes_either(self) -> None:
        assert len({tuple(self.pruned(seed)) for seed in range(10)}) > 5

    def test_each_pair_has_a_toss_of_its_own(self) -> None:
        firsts = [self.pruned(seed)[0] for seed in range(30)]
        assert 5 < firsts.count(1) < 25


class TestVote:
    def test_traces_pruned_by_way_of_others_count(self) -> None:
        # T3 is pruned into T2 and T2 into T1: both stand behind T1, and T5 alone behind T4
        driver = started(5, start_after=2)
        state = driver.policy.state_type(0, 0, ((3, 2), (2, 1), (5, 4)))
        driver.finish(4, answer="52")
        driver.finish(1, answer="29")
        groups = driver.policy.vote(state, driver.view, driver.candidates(GROUPS)).groups
        assert [v.group for v in groups] == [0, 1]

    def test_the_majority_goes_first(self) -> None:
        driver = started(5)
        state = driver.policy.state_type(0, 0, ((4, 1), (5, 1)))
        driver.finish(1, answer="29")
        driver.finish(2, 3, answer="52")
        groups = driver.policy.vote(state, driver.view, driver.candidates(GROUPS)).groups
        assert [(v.group, v.weight) for v in groups] == [(1, 2), (0, 1)]


def test_what_is_embedded() -> None:
    ours = policy("slim_sc", start_after=6, index_window=2, shortest=25)
    assert (ours.first_embedded, ours.shortest_embedded) == (4, 25)
    assert policy("slim_sc", start_after=0).first_embedded == 0
    # thoughts of 10, 10, 30, 24, 1 and 5 tokens
    driver = Driver(policy("slim_sc", N=1))
    driver.start()
    for tokens in (10, 10, 30, 24, 1, 5):
        driver.boundary(1, tokens)
    assert driver.view[1].merged_thoughts(25) == [(0, 50), (50, 75)]


def test_thoughts_that_are_all_the_same_leave_one_trace() -> None:
    driver = Driver(policy("slim_sc"), slots=24)
    play(driver, ConstantWorld(seed=1, length_mean=600, thought_mean=45))
    driver.check_end()
    assert driver.counts["pruned"] > 10
    assert driver.counts["finished"] >= 1


def test_the_tiny_profile_prunes() -> None:
    driver = Driver(policy("slim_sc"), slots=24)
    play(driver, RandomWorld(seed=1, length_mean=500, thought_mean=45))
    driver.check_end()
    assert driver.counts["pruned"] >= 4
    assert driver.counts["finished"] >= 4


def test_without_vectors_it_is_self_consistency() -> None:
    driver = Driver(policy("slim_sc"))
    play(driver, SilentWorld(seed=1))
    assert driver.counts["finished"] == 24
