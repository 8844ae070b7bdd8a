"""DeepConf: warm-up, threshold, stops and consensus by hand; offline the vote alone."""

from __future__ import annotations

import pytest

from decoder_worker.policies.base import Finish, Prune, SpawnRoot
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import AdversarialWorld, ConstantWorld, RandomWorld, SilentWorld

GROUPS = {"29": 0, "52": 1}


def started(**overrides: object) -> Driver:
    """N = 7, N_init = 3, η = 50, τ = 0.75, groups of 2 tokens, unless told otherwise."""
    given = {"N": 7, "warmup_traces": 3, "eta": 50, "tau": 0.75, "consensus_traces": 2, "window": 2}
    driver = Driver(policy("deepconf", **{**given, **overrides}))
    driver.start()
    return driver


def end(driver: Driver, number: int, confidences: list[float], answer: str | None) -> tuple[object, ...]:
    """A trace generates these tokens and finishes."""
    driver.generate(number, len(confidences), confidences)
    return driver.finish(number, answer=answer)


class TestWorkedExample:
    """N = 7, N_init = 3, η = 50, τ = 0.75, groups of 2 tokens; votes weigh as their lowest group."""

    def test_action_by_action(self) -> None:
        driver = started()
        assert driver.log[0].actions == (SpawnRoot(),) * 3
        assert driver.policy.needs_confidence

        # warm-up: nobody is stopped, however unsure. Lowest groups:
        # T1 (8 + 8, 8 + 4, 4 + 6) / 2 = 8, 6, 5 → 5;   T2 9, 9 → 9;   T3 is too short for a group: its mean 7
        driver.generate(1, 4, [8, 8, 4, 6])
        assert driver.steps() == ()
        assert driver.finish(1, answer="29") == ()
        assert end(driver, 2, [9, 9, 9], "29") == ()
        # s = percentile 50 of 5, 7, 9 = 7. T2 and T3 vote: 9 for 29, 7 for 52; 9/16 = 0.56 is no consensus
        assert end(driver, 3, [7], "52") == (SpawnRoot(),) * 4
        assert len(driver.view) == 7

        # T4 8; T5 (8 + 5) / 2 = 6.5 < 7; T6 has no full group yet; T7 (9 + 5) / 2 = 7 is not below 7
        driver.generate(4, 2, [8, 8])
        driver.generate(5, 2, [8, 5])
        driver.generate(6, 1, [6])
        driver.generate(7, 2, [9, 5])
        assert driver.steps(2) == (Prune(5),)

        # T4 votes 8 for 29: 17 of 24 = 0.71
        assert driver.finish(4, answer="29") == ()
        # T6 (6 + 9) / 2 = 7.5, (9 + 10) / 2 = 9.5: not stopped, votes 7.5 for 29: 24.5 of 31.5 = 0.78 ≥ τ
        driver.generate(6, 2, [9, 10])
        assert driver.steps(2) == ()
        assert driver.finish(6, answer=" 29 ") == (Finish(),)
        driver.check_end()
        assert driver.counts == driver.counts | {"finished": 5, "pruned": 1, "cancelled": 1}

        # T1, at 5, is below the threshold and does not vote
        votes = driver.vote({**GROUPS, " 29 ": 0}).groups
        assert [(v.group, v.weight, v.nodes) for v in votes] == [
            (0, pytest.approx(24.5), (2, 4, 6)),
            (1, pytest.approx(7.0), (3,)),
        ]


class TestStops:
    def warm(self, **overrides: object) -> Driver:
        """s = 7, and four traces that may be stopped."""
        driver = started(tau=1.0, consensus_traces=7, **overrides)
        for number, confidence in ((1, 5.0), (2, 9.0), (3, 7.0)):
            end(driver, number, [confidence] * 3, "29")
        return driver

    def test_a_dip_between_two_looks_is_seen(self) -> None:
        driver = self.warm()
        driver.generate(4, 8, [9, 9, 4, 4, 9, 9, 9, 9])
        assert driver.steps(8) == (Prune(4),)

    def test_but_each_group_is_looked_at_once(self) -> None:
        driver = self.warm()
        driver.generate(4, 8, [9, 9, 4, 4, 9, 9, 9, 9])
        # the last 3 tokens end the groups (9, 9), (9, 9), (9, 9)
        assert driver.steps(3) == ()

    def test_when_all_are_stopped_the_search_ends(self) -> None:
        driver = self.warm()
        for number in range(4, 8):
            driver.generate(number, 2, [1, 1])
        assert driver.steps(2) == tuple(Prune(n) for n in range(4, 8))
        assert driver.check_idle() == (Finish(),)

    def test_traces_without_confidences_are_not_stopped(self) -> None:
        driver = self.warm()
        driver.generate(4, 50)
        assert driver.steps(50) == ()

    @pytest.mark.parametrize(("eta", "threshold"), [(10, 8.6), (50, 7.0), (90, 5.4), (100, 5.0)])
    def test_threshold(self, eta: float, threshold: float) -> None:
        """Percentile 100 − η of 5, 7, 9: for η = 10, nine tenths of the way, 7 + 0.8 · 2."""
        driver = self.warm(eta=eta)
        for number, value in ((4, threshold - 0.01), (5, threshold + 0.01)):
            driver.generate(number, 2, [value] * 2)
        assert driver.steps(2) == (Prune(4),)


class TestConsensus:
    def test_after_the_warm_up_already(self) -> None:
        driver = started()
        for number in (1, 2):
            assert end(driver, number, [8, 8], "29") == ()
        assert end(driver, 3, [8, 8], "29") == (Finish(),)

    def test_needs_so_many_votes(self) -> None:
        driver = started(consensus_traces=4)
        for number in (1, 2, 3):
            end(driver, number, [8, 8], "29")
        assert not driver.ended
        assert end(driver, 4, [8, 8], "29") == (Finish(),)

    def test_a_share_of_exactly_tau_is_one(self) -> None:
        driver = started(weight="majority", eta=100)
        for number, answer in ((1, "29"), (2, "52"), (3, "29")):
            assert end(driver, number, [8, 8], answer)[-1:] != (Finish(),)
        assert end(driver, 4, [8, 8], "29") == (Finish(),)  # 3 of 4, and τ = 0.75

    def test_traces_without_an_answer_do_not_count(self) -> None:
        driver = started()
        end(driver, 1, [8, 8], "29")
        end(driver, 2, [8, 8], None)
        end(driver, 3, [8, 8], None)
        assert not driver.ended

    def test_the_warm_up_may_be_all(self) -> None:
        driver = started(N=3)
        end(driver, 1, [8, 8], "29")
        end(driver, 2, [8, 8], "52")
        assert end(driver, 3, [8, 8], None) == (Finish(),)


class TestOffline:
    def test_all_run_to_the_end(self) -> None:
        driver = started(mode="offline")
        assert driver.log[0].actions == (SpawnRoot(),) * 7
        assert driver.policy.check_every == 0
        for number in range(1, 7):
            assert end(driver, number, [number] * 3, "29" if number < 4 else "52") == ()
        assert end(driver, 7, [7, 7], "29") == (Finish(),)
        # η = 50: percentile 50 of 1 … 7 is 4, so T4 … T7 vote: 52 with 4 + 5 + 6, 29 with 7
        votes = driver.vote(GROUPS).groups
        assert [(v.group, v.weight, v.nodes) for v in votes] == [
            (1, pytest.approx(15), (6, 5, 4)),
            (0, pytest.approx(7), (7,)),
        ]

    def test_a_search_that_ends_within_its_warm_up_votes_so_too(self) -> None:
        driver = started()
        end(driver, 1, [1, 1], "29")
        end(driver, 2, [9, 9], "52")
        # a budget ends it here: η = 50 of 1 and 9 is 5
        assert [v.group for v in driver.vote(GROUPS).groups] == [1]


@pytest.mark.parametrize("world", [RandomWorld, AdversarialWorld])
def test_the_tiny_profile_stops_traces(world: type[RandomWorld]) -> None:
    driver = Driver(policy("deepconf"), slots=24)
    play(driver, world(seed=4, length_mean=500, thought_mean=45))
    driver.check_end()
    assert driver.counts["roots"] == 24
    assert driver.counts["pruned"] >= 3


def test_equal_confidences_stop_nobody() -> None:
    driver = Driver(policy("deepconf", consensus_traces=24))
    play(driver, ConstantWorld(seed=4))
    assert driver.counts == driver.counts | {"finished": 24, "pruned": 0}


def test_without_confidences_it_is_a_majority() -> None:
    driver = Driver(policy("deepconf"))
    play(driver, SilentWorld(seed=4))
    assert driver.counts["finished"] == 24
    assert driver.vote({}).winner is None


def test_a_state_with_unknown_confidences_comes_back() -> None:
    ours = policy("deepconf")
    state = ours.state_type(True, None, ((1, None, None), (2, 3.5, 2.25)))
    assert ours.load(ours.dump(state)) == state
