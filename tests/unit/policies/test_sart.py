"""SART: phases, thresholds and the end, by hand; and what it has in common with its neighbours."""

from __future__ import annotations

from collections import Counter
from math import comb, sqrt
from typing import ClassVar

import pytest

from decoder_worker.policies.base import Finish, Prune, SpawnRoot, TracesFinished
from decoder_worker.tree_view import Trace
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import ConstantWorld, RandomWorld
from tree_store.model import NodeState

GROUPS = {"29": 0, "52": 1, "7": 2}


def started(name: str = "sart", **overrides: object) -> Driver:
    """N = 6, M = 3, β = 3, α = 0.5, T = 40, reward = mean, unless told otherwise."""
    alpha = {"alpha": 0.5} if name == "sart" else {}
    driver = Driver(policy(name, **{"N": 6, **alpha, **overrides}))
    driver.start()
    return driver


class TestWorkedExample:
    """N = 6, so M = 3 and β = 3; α = 0.5, T = 40."""

    def test_action_by_action(self) -> None:
        driver = Driver(policy("sart", N=6, alpha=0.5))
        assert driver.policy.check_every == 40
        assert driver.start() == (SpawnRoot(),) * 6

        # explore. Below 0.5 are T2, T4 and T5: all three may go, the lowest first
        assert driver.think((1, 0.6), (2, 0.4), (3, 0.5), (4, 0.3)) == ()
        assert driver.steps() == (Prune(4), Prune(2))
        # T3 stands at 0.5, which is not below; T5 and T6 have no reward yet
        assert driver.think((5, 0.4), (6, 0.9)) == ()
        assert driver.steps() == (Prune(5),)
        # β = 3 are gone: T3, at (0.5 + 0.3) / 2 = 0.4, is below 0.5 and stays
        assert driver.think((3, 0.3)) == ()
        assert driver.steps() == ()

        # T1 completes with (0.6 + 0.8) / 2 = 0.7: at the next check α′ = 0.7 and up to N − 1 = 5 may go,
        # 3 of which have; T3 is below it, T6 is not
        assert driver.think((1, 0.8)) == ()
        assert driver.finish(1, answer="29") == ()
        assert driver.steps() == (Prune(3),)

        # completed 1, pruned 4, and T6 is left: it goes on although (0.9 + 0.9) / 2 changes nothing
        assert driver.think((6, 0.9)) == ()
        assert driver.steps() == ()
        # completed + pruned = 6 = N
        assert driver.finish(6, answer="52") == (Finish(),)
        driver.check_end()
        assert driver.counts == driver.counts | {"finished": 2, "pruned": 4, "cancelled": 0}

        # the highest reward answers: 0.9 of T6 against 0.7
        votes = driver.vote(GROUPS).groups
        assert [(v.group, v.weight) for v in votes] == [(1, pytest.approx(0.9)), (0, pytest.approx(0.7))]

    def test_the_mth_completion_ends_it_at_once(self) -> None:
        driver = started()
        driver.think(*((n, 0.6) for n in range(1, 7)))
        assert driver.finish(2) == ()
        assert driver.finish(4, 5) == (Finish(),)
        assert driver.counts == driver.counts | {"finished": 3, "cancelled": 3}

    def test_prunings_can_end_it(self) -> None:
        # given a first completion with the highest reward of all
        driver = started(N=3, M=2)
        driver.think((1, 0.9), (2, 0.6), (3, 0.7))
        driver.finish(1, answer="7")
        # then the next check prunes the rest and nothing is left to wait for
        assert driver.steps() == (Prune(2), Prune(3), Finish())
        driver.check_end()


class TestPhases:
    def test_a_completion_changes_nothing_before_the_next_check(self) -> None:
        driver = started()
        driver.think(*((n, 0.6) for n in range(1, 7)))
        driver.think((1, 1.0))
        assert driver.finish(1) == ()
        assert driver.counts["pruned"] == 0
        # α′ = (0.6 + 1.0) / 2 = 0.8: at that check the new threshold holds already, and 5 may go
        assert driver.steps() == (Prune(6), Prune(5), Prune(4), Prune(3), Prune(2), Finish())

    def test_the_earliest_completion_gives_the_threshold_not_the_best(self) -> None:
        driver = started(M=4)
        driver.think((1, 0.3), (2, 0.9), (3, 0.6), (4, 0.2))
        driver.finish(1)
        driver.finish(2)
        assert driver.steps() == (Prune(4),)

    def test_of_those_of_one_step_the_highest(self) -> None:
        driver = started(M=4)
        driver.think((1, 0.3), (2, 0.7), (3, 0.6), (4, 0.2))
        driver.finish(1, 2)
        assert driver.steps() == (Prune(4), Prune(3))

    def test_later_completions_do_not_move_it(self) -> None:
        driver = started(M=5)
        driver.think((1, 0.5), (2, 0.9), (3, 0.6))
        driver.finish(1)
        driver.steps()
        driver.finish(2)
        assert driver.steps() == ()

    def test_a_score_that_comes_after_the_completion_still_makes_up_its_reward(self) -> None:
        driver = started(M=4, reward="last")
        driver.think((1, 0.6), (2, 0.7), (3, 0.8), (4, 0.95))
        driver.boundary(1, 10)  # its score is under way
        driver.finish(1)
        assert driver.steps() == ()  # α′ = 0.6
        driver.deliver((1, 0.9))
        assert driver.steps() == (Prune(2), Prune(3))

    def test_a_completion_without_a_reward_leaves_alpha(self) -> None:
        driver = started()
        driver.think((2, 0.55), (3, 0.45))
        driver.finish(1)
        assert driver.steps() == (Prune(3),)

    def test_beta_limits_the_first_phase_and_what_was_pruned_carries_over(self) -> None:
        driver = started(beta=1)
        driver.think(*((n, 0.1 * n) for n in range(1, 7)))
        assert driver.steps() == (Prune(1),)
        assert driver.steps() == ()
        driver.think((6, 0.6))
        driver.finish(6)
        # N − 1 = 5 in the second phase, 1 is gone: 4 more may go, and all four are below 0.6
        assert driver.steps() == (Prune(2), Prune(3), Prune(4), Prune(5), Finish())

    def test_only_branches_in_the_batch_are_pruned(self) -> None:
        driver = Driver(policy("sart", N=6, alpha=0.5), slots=2)
        driver.start()
        driver.think((1, 0.1), (2, 0.9))
        assert driver.steps() == (Prune(1),)
        assert driver.view[3].state is NodeState.LIVE
        assert driver.view[4].state is NodeState.PENDING

    def test_a_branch_that_waits_again_is_not_in_it(self) -> None:
        # given a search that another worker has taken over: what was live is pending again, with its scores
        driver = started()
        driver.think((1, 0.1), (2, 0.9))
        driver.view.move(driver.view[1], NodeState.PENDING)
        assert driver.steps() == ()


@pytest.mark.parametrize(("by", "lowest"), [("last", 1), ("min", 2), ("mean", 3), ("product", 4)])
def test_rewards(by: str, lowest: int) -> None:
    """Which of four is the lowest, by each kind of reward."""
    scores = {1: (0.9, 0.3), 2: (0.2, 0.9), 3: (0.4, 0.4), 4: (0.7, 0.5, 0.34)}
    # last .3 .9 .4 .34, min .3 .2 .4 .34, mean .6 .55 .4 .51, product .27 .18 .16 .12
    driver = started(N=8, beta=1, alpha=0.95, reward=by)
    for number, given in scores.items():
        driver.think(*((number, score) for score in given))
    assert driver.steps() == (Prune(lowest),)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 1), (3, 1), (8, 4), (9, 4)])
def test_half_of_n_complete(n: int, m: int) -> None:
    assert policy("sart", N=n).parameters.completions == m
    assert policy("sart_no_prune", N=n).parameters.completions == m
    assert policy("sart", N=n).parameters.most_pruned == n // 2


def test_an_idle_engine_ends_it() -> None:
    assert Driver(policy("sart", N=3)).check_idle() == (Finish(),)


class UniformWorld(RandomWorld):
    """A token per tick; lengths from 1 to `longest`, all as likely."""

    longest: ClassVar[int] = 20

    def thought(self, trace: Trace) -> int:
        return 1

    def length(self, trace: Trace) -> int:
        return self._draw(trace, "length").randint(1, self.longest)


class TestNoPrune:
    def test_action_by_action(self) -> None:
        """N = 6, so M = 3; nothing is checked and nobody pruned, however low."""
        driver = Driver(policy("sart_no_prune", N=6))
        assert driver.policy.check_every == 0
        assert driver.start() == (SpawnRoot(),) * 6
        assert driver.think((1, 0.01), (2, 0.6), (3, 0.3), (4, 0.9)) == ()
        assert driver.finish(1, answer="7") == ()
        assert driver.think((4, 0.7), (5, 0.4)) == ()
        assert driver.finish(3, answer="7") == ()
        assert driver.finish(4, answer="29") == (Finish(),)
        driver.check_end()
        assert driver.counts == driver.counts | {"finished": 3, "pruned": 0, "cancelled": 3}

        # the highest reward answers, (0.9 + 0.7) / 2 of T4, against two that agree, the better with 0.3
        votes = driver.vote(GROUPS).groups
        assert [(v.group, v.weight) for v in votes] == [(0, pytest.approx(0.8)), (2, pytest.approx(0.3))]

    @pytest.mark.parametrize("seed", range(5))
    def test_with_m_of_n_it_samples_what_self_consistency_samples(self, seed: int) -> None:
        ours = Driver(policy("sart_no_prune", N=9, M=9), slots=4)
        theirs = Driver(policy("self_consistency", N=9), slots=4)
        for driver in (ours, theirs):
            play(driver, RandomWorld(seed))
            driver.check_end()
        traces = [
            {t.number: (t.state, t.sequence(), t.answer) for t in d.view.traces.values()}
            for d in (ours, theirs)
        ]
        assert traces[0] == traces[1]
        assert ours.counts["finished"] == 9

    @pytest.mark.parametrize("n", [4, 8, 16])
    def test_the_mth_of_n_completes_as_order_statistics_say(self, n: int) -> None:
        """P(M-th of N completes within L) = Σ_{i=M..N} C(N, i) F(L)^i (1 − F(L))^(N − i)."""
        m, runs = n // 2, 300
        within: Counter[int] = Counter()
        for seed in range(runs):
            driver = Driver(policy("sart_no_prune", N=n))
            play(driver, UniformWorld(seed=seed * 100 + n))
            within[driver.view.finished[m - 1].total_tokens] += 1
        for length in range(2, UniformWorld.longest, 3):
            f = length / UniformWorld.longest
            expected = sum(comb(n, i) * f**i * (1 - f) ** (n - i) for i in range(m, n + 1))
            seen = sum(count for tokens, count in within.items() if tokens <= length) / runs
            # four standard deviations, and one run
            assert abs(seen - expected) <= 4 * sqrt(expected * (1 - expected) / runs) + 1 / runs

    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("by", ["last", "min", "mean"])  # a product of equal scores is not their value
    @pytest.mark.parametrize(("score", "alpha"), [(0.5, 0.5), (0.7, 0.7), (0.7, 0.3), (0.9, 0.9), (1.0, 0.5)])
    def test_with_equal_rewards_sart_does_nothing_else(
        self, score: float, alpha: float, by: str, seed: int
    ) -> None:
        logs = []
        for name, given in (("sart", {"alpha": alpha}), ("sart_no_prune", {})):
            driver = Driver(policy(name, N=9, M=4, reward=by, **given), slots=5)
            play(driver, ConstantWorld(seed, constant=score))
            driver.check_end()
            logs.append([e for e in driver.log if isinstance(e.observation, TracesFinished) or e.actions])
        assert logs[0] == logs[1]
        assert logs[0][-1].actions == (Finish(),)
