"""Gambit's rules one by one, on hand-made trees."""

from __future__ import annotations

import pytest

from decoder_worker.policies.base import Branch, Evict, Finish, Prune
from tests.unit.policies.driver import Driver, play, policy
from tests.unit.policies.worlds import RandomWorld
from tree_store.model import NodeState


def started(slots: int | None = None, **overrides: object) -> Driver:
    """C = 4, K = 1, Δ = 4, w = 0, N_max = 4 unless told otherwise."""
    given = {"C": 4, "K": 1, "interval": 4, "warmup": 0, "N_max": 4, **overrides}
    driver = Driver(policy("gambit", **given), slots=slots)
    driver.start()
    return driver


class TestTournament:
    def test_prunes_the_lowest_and_branches_the_highest(self) -> None:
        driver = started()
        assert driver.think((1, 0.4), (2, 0.9), (3, 0.1), (4, 0.5)) == (Prune(3), Branch(2))

    def test_ties_go_to_the_lower_number(self) -> None:
        driver = started()
        assert driver.think((1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5)) == (Prune(4), Branch(1))

    def test_unscored_traces_rank_at_the_mean_of_the_scored(self) -> None:
        # given traces 3 and 4 without a score, 1 above and 2 below the mean
        driver = started(interval=2)
        # then the unscored ones are neither the best nor the worst
        assert driver.think((1, 0.9), (2, 0.1)) == (Prune(2), Branch(1))

    def test_no_parent_is_pruned(self) -> None:
        # given a single trace that may be branched, with the lowest score of all
        driver = started(warmup=20)
        driver.think((2, 0.5), (3, 0.5), (4, 0.6))
        # then the lowest of the others goes
        assert driver.think((1, 0.1), tokens=20) == (Prune(3), Branch(1))

    def test_exchanges_as_many_as_may_be_branched(self) -> None:
        driver = started(K=2, warmup=20)
        driver.think((1, 0.1), (2, 0.5), (3, 0.5))
        assert driver.think((4, 0.6), tokens=20) == (Prune(1), Branch(4))

    def test_with_no_trace_to_branch_nothing_is_pruned(self) -> None:
        driver = started(warmup=1000)
        assert driver.think((1, 0.4), (2, 0.9), (3, 0.1), (4, 0.5)) == ()
        assert len(driver.rounds) == 1

    def test_k_of_zero_only_refills(self) -> None:
        driver = started(K=0)
        assert driver.think((1, 0.4), (2, 0.9), (3, 0.1), (4, 0.5)) == ()
        driver.finish(1)
        assert driver.think((2, 0.9), (2, 0.9), (3, 0.1), (4, 0.5)) == (Branch(2),)

    def test_pending_traces_count_and_can_be_pruned_but_not_branched(self) -> None:
        # given two slots, so that two of four are pending
        driver = started(slots=2, interval=2)
        assert driver.think((1, 0.9), (2, 0.9)) == (Prune(4), Branch(1))
        assert driver.view[5].state is NodeState.PENDING
        assert driver.view[5].mean_score == pytest.approx(0.9)
        # then its high inherited score does not make it a parent
        assert driver.think((1, 0.1), (2, 0.8)) == (Prune(1), Branch(2))


class TestInterval:
    def test_counts_over_the_tree_and_carries_the_rest_over(self) -> None:
        driver = started(K=0, interval=4)
        driver.think(*[(1, 0.5)] * 3)
        assert not driver.rounds
        driver.think(*[(2, 0.5)] * 7)  # 10 = 2 × 4 + 2, but one observation holds one tournament
        assert len(driver.rounds) == 1
        driver.think((3, 0.5))  # 7 left: the second one
        assert len(driver.rounds) == 2
        driver.think((3, 0.5))  # 3 + 1
        assert len(driver.rounds) == 3

    def test_counts_by_trace(self) -> None:
        driver = started(K=0, interval=3, interval_scope="trace")
        driver.think((1, 0.5), (1, 0.5), (2, 0.5), (2, 0.5), (3, 0.5))
        assert not driver.rounds
        driver.think((2, 0.5))
        assert len(driver.rounds) == 1
        # since then every trace counts anew
        driver.think((1, 0.5), (1, 0.5), (2, 0.5))
        assert len(driver.rounds) == 1
        driver.think((1, 0.5))
        assert len(driver.rounds) == 2

    def test_thoughts_count_when_their_score_arrives(self) -> None:
        driver = started(K=0, interval=2)
        driver.boundary(1, 10)
        driver.boundary(1, 10)
        assert driver.deliver((1, 0.5)) == ()
        driver.deliver((1, None))  # refused: not a scored thought
        assert not driver.rounds
        driver.think((1, 0.5))
        assert len(driver.rounds) == 1


class TestWarmup:
    def branch_of_a_long_parent(self, scope: str) -> Driver:
        """Trace 5 has inherited 40 tokens and generated 10, in a tree with w = 20."""
        driver = started(warmup=20, warmup_scope=scope)
        driver.think((1, 0.1), (2, 0.1), (3, 0.1))
        driver.think((4, 0.9), tokens=40)
        driver.think((5, 1.0), tokens=10)
        driver.think((1, 0.1), (2, 0.1))
        return driver

    def test_a_new_trace_must_generate_w_tokens_itself(self) -> None:
        driver = self.branch_of_a_long_parent("own")
        assert driver.think((2, 0.1))[-1] == Branch(4)

    def test_or_inherit_them(self) -> None:
        driver = self.branch_of_a_long_parent("total")
        assert driver.think((2, 0.1))[-1] == Branch(5)

    def test_a_scored_thought_of_its_own_is_needed(self) -> None:
        # given a branch with the best score, long enough, whose own thought has not come back yet
        driver = started(warmup=20)
        driver.think((1, 0.1), (2, 0.1), (3, 0.1))
        driver.think((4, 0.9), tokens=40)
        driver.boundary(5, 20)
        driver.think((4, 0.5), (2, 0.1))
        assert driver.view[5].mean_score == pytest.approx(0.9)
        # then it is passed over
        assert driver.think((2, 0.1), (2, 0.1))[-1] == Branch(4)


class TestRefill:
    def test_only_refills_while_traces_are_missing(self) -> None:
        driver = started()
        driver.finish(3)
        assert driver.think((1, 0.4), (2, 0.9), (4, 0.1), (4, 0.1)) == (Branch(2),)

    def test_fills_no_more_than_the_places_that_are_free(self) -> None:
        driver = started()
        driver.finish(3, 4)
        assert driver.think((1, 0.4), (1, 0.4), (2, 0.9), (2, 0.9)) == (Branch(2), Branch(1))
        assert driver.view.capacity_count == 4

    def test_what_cannot_be_filled_waits_for_the_next_round(self) -> None:
        driver = started(warmup=20)
        driver.finish(3, 4)
        driver.think((1, 0.4), tokens=20)
        assert driver.think((2, 0.9), (2, 0.9), (1, 0.4), tokens=5) == (Branch(1),)
        assert driver.think((2, 0.9), (2, 0.9), (1, 0.4), (1, 0.4), tokens=5) == (Branch(2),)

    def test_off_the_traces_left_go_on_exchanging(self) -> None:
        driver = started(refill=False, K=2)
        driver.finish(4)
        assert driver.think((1, 0.4), (1, 0.4), (2, 0.9), (3, 0.1)) == (Prune(3), Branch(2))
        assert driver.view.capacity_count == 3

    def test_a_finish_alone_changes_nothing(self) -> None:
        assert started().finish(1) == ()


class TestEnd:
    def test_the_finish_that_completes_n_max_closes_a_round_at_once(self) -> None:
        driver = started(N_max=2)
        driver.think((1, 0.4), (2, 0.9), (3, 0.1))
        assert driver.finish(3) == ()
        assert driver.finish(1) == (Branch(2), Finish())

    def test_several_finishes_at_once(self) -> None:
        driver = started(N_max=2)
        driver.think((1, 0.4))
        assert driver.finish(2, 3, 4) == (Branch(1), Finish())

    def test_an_idle_engine_ends_the_search(self) -> None:
        driver = started(N_max=100)
        driver.finish(1, 2, 3, 4)
        assert driver.check_idle() == (Finish(),)
        assert driver.log[-1].tournament

    def test_ghosts_alone_do_not_keep_it_alive(self) -> None:
        driver = started(N_max=100)
        driver.press(100)
        driver.finish(1)
        assert driver.check_idle() == (Finish(),)
        assert driver.counts["cancelled"] == 3


class TestPressure:
    def test_evicts_the_lowest_until_enough_is_given_back(self) -> None:
        driver = started(interval=100)
        driver.think((1, 0.4), (2, 0.9), (3, 0.1), (4, 0.5))
        assert driver.press(5, {1: 3, 2: 9, 3: 2, 4: 9}) == (Evict(3), Evict(1))

    def test_never_the_last_live_trace(self) -> None:
        driver = started(interval=100)
        assert driver.press(1000) == (Evict(4), Evict(3), Evict(2))
        assert driver.press(1000) == ()

    def test_unscored_traces_go_at_the_mean_of_the_scored(self) -> None:
        driver = started(interval=100)
        driver.think((1, 0.9), (2, 0.1))
        assert driver.press(2, dict.fromkeys(range(1, 5), 1)) == (Evict(2), Evict(4))

    def test_a_ghost_keeps_its_place(self) -> None:
        # given a full tree of which two are ghosts
        driver = started(interval=6)
        driver.think((1, 0.4), (2, 0.9), (3, 0.2), (4, 0.1))
        driver.press(2, dict.fromkeys(range(1, 5), 1))
        assert (driver.view.count(NodeState.GHOST), driver.view.capacity_count) == (2, 4)
        # then the tournament exchanges (and prunes a ghost), it does not refill
        assert driver.think((1, 0.4), (2, 0.9)) == (Prune(4), Branch(2))

    def test_a_ghost_is_never_branched(self) -> None:
        # given the best trace as a ghost
        driver = started(interval=5)
        driver.think((1, 0.4), (2, 0.9), (3, 0.95), (4, 0.5))
        driver.view.move(driver.view[3], NodeState.GHOST)
        # then the next one is the parent
        assert driver.think((4, 0.5)) == (Prune(1), Branch(2))

    def test_storm(self) -> None:
        """KV for a quarter of the traces: evictions open no places, and it ends with finished traces."""
        driver = Driver(policy("gambit", C=32, K=4, N_max=32), slots=32)
        play(driver, RandomWorld(seed=3, length_mean=320), kv=32 * 20 // 4)
        driver.check_end()
        counts = driver.counts
        evictions = sum(trace.evictions for trace in driver.view.traces.values())
        assert evictions >= 16
        assert counts["branches"] > 0
        assert counts["branches"] <= counts["pruned"] + counts["finished"]
        assert counts["finished"] > 0


def test_state_is_readable_json() -> None:
    tree = policy("gambit")
    assert tree.dump(tree.initial(0)) == '{"thoughts":0,"by_trace":[],"places":[]}'
    assert tree.load('{"thoughts":7,"by_trace":[[1,3]]}') == type(tree.initial(0))(7, ((1, 3),))
    places = type(tree.initial(0))(places=((1, (0.0, 0.5)), (2, (1.0,))))
    assert tree.load(tree.dump(places)) == places


def test_child_temperature() -> None:
    assert policy("gambit").child_temperature is None
    assert policy("gambit", child_temperature=0.6).child_temperature == 0.6
