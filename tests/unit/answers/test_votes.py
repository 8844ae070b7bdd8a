"""Votes over finished traces; ties are never left to chance."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Callable, Sequence
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.answers.candidates import candidate
from decoder_worker.answers.votes import (
    Aggregate,
    Candidate,
    Decision,
    aggregate,
    best,
    confident,
    confident_offline,
    decorrelated,
    majority,
    tally,
    weighted,
)
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState, Thought

Vote = Callable[[Sequence[Candidate]], Decision]

# every vote there is, with the one parameter that matters to ties
VOTES: dict[str, Vote] = {
    "majority": majority,
    "weighted": weighted,
    **{f"weighted by {by}": lambda rows, by=by: weighted(rows, by) for by in get_args(Aggregate)},
    **{f"best by {by}": lambda rows, by=by: best(rows, by) for by in get_args(Aggregate)},
    "decorrelated": decorrelated,
    **{
        f"confident {by}": lambda rows, by=by: confident(rows, by, window=3, threshold=4.0)
        for by in ("mean", "tail", "bottom", "lowest", "majority")
    },
    **{
        f"confident offline {by}": lambda rows, by=by: confident_offline(rows, by, window=3, eta=50)
        for by in ("mean", "tail", "bottom", "lowest", "majority")
    },
}


def candidates(*rows: tuple[int | None, float | None]) -> list[Candidate]:
    """(group, score) of each trace, in the order of finishing; all three scores are the same."""
    return [
        Candidate(
            node=10 + order,
            group=group,
            order=order,
            mean_score=score,
            last_score=score,
            min_score=score,
            product_score=score,
        )
        for order, (group, score) in enumerate(rows, 1)
    ]


def outcome(decision: object) -> list[tuple[int, float, tuple[int, ...]]]:
    return [(g.group, pytest.approx(g.weight), g.nodes) for g in decision.groups]  # type: ignore[attr-defined]


def test_majority() -> None:
    assert outcome(majority(candidates((0, 0.9), (1, 0.1), (1, None), (None, 1.0)))) == [
        (1, 2, (12, 13)),
        (0, 1, (11,)),
    ]


def test_weighted() -> None:
    assert outcome(weighted(candidates((0, 0.9), (1, 0.3), (1, 0.4)))) == [
        (0, 0.9, (11,)),
        (1, 0.7, (13, 12)),
    ]


def test_a_trace_without_a_score_weighs_as_the_mean_of_the_others() -> None:
    assert outcome(weighted(candidates((0, 0.75), (1, 0.25), (1, None)))) == [
        (1, 0.75, (13, 12)),
        (0, 0.75, (11,)),
    ]
    assert outcome(weighted(candidates((0, None), (1, None), (1, None)))) == [(1, 2, (12, 13)), (0, 1, (11,))]


def test_best() -> None:
    rows = candidates((0, 0.8), (0, 0.8), (0, 0.8), (1, 0.9), (None, 1.0))
    assert outcome(best(rows, "mean")) == [(1, 0.9, (14,)), (0, 0.8, (11, 12, 13))]


@pytest.mark.parametrize(("by", "winner"), [("mean", 0), ("last", 1), ("min", 2), ("product", 3)])
def test_by(by: Aggregate, winner: int) -> None:
    """Each of four traces is ahead in one of its scores."""
    rows = [
        Candidate(1, 0, 1, 0.9, 0.1, 0.1, 0.1),
        Candidate(2, 1, 2, 0.1, 0.9, 0.1, 0.1),
        Candidate(3, 2, 3, 0.1, 0.1, 0.9, 0.1),
        Candidate(4, 3, 4, 0.1, 0.1, 0.1, 0.9),
    ]
    assert best(rows, by).groups[0].group == winner
    assert outcome(weighted(rows, by))[0] == (winner, 0.9, (winner + 1,))


@pytest.mark.parametrize(("by", "value"), [("mean", 0.5), ("last", 0.6), ("min", 0.1), ("product", 0.048)])
def test_aggregate(by: Aggregate, value: float) -> None:
    assert aggregate([0.8, 0.1, 0.6], by) == pytest.approx(value)
    assert aggregate([], by) is None


def test_best_without_any_score_is_the_majority() -> None:
    assert best(candidates((0, None), (1, None), (1, None)), "mean").groups[0].group == 1


class TestBacking:
    """Slim-SC: traces pruned into a group break ties of weight before the number of traces does."""

    def test_breaks_a_tie(self) -> None:
        rows = candidates((0, None), (1, None))
        assert outcome(majority(rows, {12: 1})) == [(1, 1, (12,)), (0, 1, (11,))]
        assert outcome(majority(rows, {12: 1, 11: 2})) == [(0, 1, (11,)), (1, 1, (12,))]

    def test_but_does_not_outvote(self) -> None:
        rows = candidates((0, None), (1, None), (1, None))
        assert majority(rows, {11: 100}).groups[0].group == 1

    def test_is_summed_over_the_group(self) -> None:
        rows = candidates((0, None), (1, None), (0, None), (1, None))
        assert majority(rows, {11: 2, 12: 1, 14: 2}).groups[0].group == 1

    def test_nodes_that_do_not_vote_are_left_out(self) -> None:
        rows = candidates((0, None), (1, None), (None, None))
        assert majority(rows, {13: 5, 99: 5}).groups[0].group == 0

    def test_comes_before_the_number_of_traces(self) -> None:
        rows = candidates((0, None), (0, None), (1, None))
        decision = tally(rows, [1.0, 1.0, 2.0], {13: 1})
        assert [g.group for g in decision.groups] == [1, 0]
        assert [g.group for g in tally(rows, [1.0, 1.0, 2.0]).groups] == [0, 1]


def on_paths(*rows: tuple[int, float | None, tuple[tuple[int, int], ...]]) -> list[Candidate]:
    """(group, mean score, path) of each trace, in the order of finishing."""
    return [
        Candidate(path[-1][0], group, order, score, path=path)
        for order, (group, score, path) in enumerate(rows, 1)
    ]


class TestDecorrelated:
    def test_by_hand(self) -> None:
        # T1 has 100 tokens. T2 leaves it at 40 and has 60; T3 leaves T2 at 50 and has 80; T4 stands alone.
        # Positions 1 … 40 are shared by T1, T2 and T3, 41 … 50 of T2 by T2 and T3.
        rows = on_paths(
            (0, 0.9, ((1, 100),)),  # (40/3 + 60) / 100
            (0, 0.6, ((1, 40), (2, 60))),  # (40/3 + 10/2 + 10) / 60
            (0, 0.3, ((1, 40), (2, 50), (3, 80))),  # (40/3 + 10/2 + 30) / 80
            (1, 0.8, ((4, 70),)),  # 1
        )
        weights = [
            0.9 * (40 / 3 + 60) / 100,
            0.6 * (40 / 3 + 5 + 10) / 60,
            0.3 * (40 / 3 + 5 + 30) / 80,
        ]
        assert outcome(decorrelated(rows)) == [(0, sum(weights), (1, 2, 3)), (1, 0.8, (4,))]

    def test_a_common_answer_of_one_family_weighs_less(self) -> None:
        # three traces that are nearly one against two independent ones
        family = [(0, 0.5, ((1, 98), (n, 100))) for n in (2, 3, 4)]
        alone = [(1, 0.5, ((n, 100),)) for n in (5, 6)]
        assert weighted(on_paths(*family, *alone)).groups[0].group == 0
        assert decorrelated(on_paths(*family, *alone)).groups[0].group == 1

    def test_only_finished_traces_share(self) -> None:
        # T1, which T2 leaves at 40, has not finished
        assert outcome(decorrelated(on_paths((0, 0.5, ((1, 40), (2, 60)))))) == [(0, 0.5, (2,))]

    def test_a_trace_without_an_answer_shares_too(self) -> None:
        rows = [Candidate(1, None, 1, 0.5, path=((1, 10),)), Candidate(2, 0, 2, 0.5, path=((1, 5), (2, 10)))]
        assert outcome(decorrelated(rows)) == [(0, 0.5 * (5 / 2 + 5) / 10, (2,))]

    def test_traces_that_leave_at_the_same_place(self) -> None:
        rows = on_paths((0, 1.0, ((1, 6), (2, 10))), (1, 1.0, ((1, 6), (3, 10))), (2, 1.0, ((1, 6), (4, 10))))
        assert [g.weight for g in decorrelated(rows).groups] == [pytest.approx((6 / 3 + 4) / 10)] * 3

    def test_a_branch_that_ends_at_once(self) -> None:
        rows = on_paths((0, 1.0, ((1, 10),)), (1, 1.0, ((1, 10), (2, 10))))
        assert [g.weight for g in decorrelated(rows).groups] == [pytest.approx(0.5)] * 2

    def test_no_tokens_no_sharing(self) -> None:
        assert outcome(decorrelated(on_paths((0, 0.5, ((1, 0),))))) == [(0, 0.5, (1,))]


@settings(deadline=None)
@given(st.integers(0, 10_000))
def test_decorrelated_against_counting_every_position(seed: int) -> None:
    """On random trees: weight = mean score · mean over the positions of 1 / traces that share it."""
    rng = random.Random(seed)
    view = TreeView()
    for _ in range(rng.randint(1, 25)):
        live = view.in_state(NodeState.LIVE)
        if not live or rng.random() < 0.2:
            view.move(view.add_root(), NodeState.LIVE)
            continue
        trace = rng.choice(live)
        if trace.last_scored() is not None and rng.random() < 0.4:
            view.move(view.add_branch(trace), NodeState.LIVE)
        else:
            think(view, trace, rng.randint(1, 4), rng.random())
    for trace in view.in_state(NodeState.LIVE):
        if rng.random() < 0.8 and trace.scored:
            view.move(trace, NodeState.FINISHED)
    finished = view.finished
    owners = [owned(trace) for trace in finished]
    decision = decorrelated([candidate(trace, i) for i, trace in enumerate(finished)])
    weights = {group.group: group.weight for group in decision.groups}
    for i, trace in enumerate(finished):
        shares = [1 / sum(position in other for other in owners) for position in owners[i]]
        mean = sum(shares) / len(shares)
        assert weights[i] == pytest.approx((trace.mean_score or 0.0) * mean)
    if sum(len(o) for o in owners) == len(set().union(*owners)):
        plain = weighted([candidate(trace, i) for i, trace in enumerate(finished)])
        assert plain == decision


def think(view: TreeView, trace: Trace, tokens: int, score: float) -> None:
    view.append_tokens(trace, [0] * tokens)
    trace.thoughts.append(Thought(trace.total_tokens))
    view.set_score(trace, len(trace.thoughts) - 1, score)


def owned(trace: Trace) -> set[tuple[int, int]]:
    """(node, position) of each of its tokens."""
    if trace.parent is None:
        inherited = set()
    else:
        inherited = {(node, at) for node, at in owned(trace.parent) if at <= trace.branch_position}
    own = range(trace.branch_position + 1, trace.total_tokens + 1)
    return inherited | {(trace.number, at) for at in own}


def with_confidences(*rows: tuple[int | None, list[float]]) -> list[Candidate]:
    """(group, one confidence per token) of each trace, in the order of finishing."""
    return [
        Candidate(10 + order, group, order, None, confidences=array("f", confidences))
        for order, (group, confidences) in enumerate(rows, 1)
    ]


class TestDeepConf:
    """Groups of 2. T11 has 8, 6, 5; T12 9, 9; T13 is too short for a group, its mean is 7; T14 4, 10."""

    ROWS = ((0, [8, 8, 4, 6]), (1, [9, 9, 9]), (0, [7]), (0, [4, 4, 16]))

    @pytest.mark.parametrize(
        ("by", "weights"),
        [
            ("mean", (6.5, 9, 7, 8)),
            ("tail", (5, 9, 7, 10)),
            ("lowest", (5, 9, 7, 4)),
            ("bottom", (5.5, 9, 7, 4)),  # 70 % of 3 groups are 2, of 2 are 1
            ("majority", (1, 1, 1, 1)),
        ],
    )
    def test_weights(self, by: Any, weights: tuple[float, ...]) -> None:
        decision = confident(with_confidences(*self.ROWS), by, window=2, bottom=0.7)
        by_group = {g.group: g.weight for g in decision.groups}
        assert by_group == {0: pytest.approx(weights[0] + weights[2] + weights[3]), 1: weights[1]}

    @pytest.mark.parametrize(
        ("threshold", "voters"),
        [
            (None, {11, 12, 13, 14}),
            (4.0, {11, 12, 13, 14}),
            (4.1, {11, 12, 13}),
            (7.0, {12, 13}),
            (9.0, {12}),
        ],
    )
    def test_online_the_lowest_group_decides_who_votes(
        self, threshold: float | None, voters: set[int]
    ) -> None:
        # whatever weighs the votes: by its mean T14 would be the second best
        for by in ("mean", "lowest", "majority"):
            decision = confident(
                with_confidences(*self.ROWS),
                by,  # type: ignore[arg-type]
                window=2,
                threshold=threshold,
            )
            assert {n for g in decision.groups for n in g.nodes} == voters

    @pytest.mark.parametrize(
        ("by", "eta", "voters"),
        [
            # percentile 50 of 4, 5, 7, 9 is 6, percentile 90 is 8.4, percentile 75 is 7.5
            ("lowest", 50, {12, 13}),
            ("lowest", 10, {12}),
            ("lowest", 25, {12}),
            # of the means 6.5, 7, 8, 9: 7.5
            ("mean", 50, {12, 14}),
            ("majority", 50, {12, 14}),
            # of the tails 5, 7, 9, 10: 8
            ("tail", 50, {12, 14}),
            ("bottom", 100, {11, 12, 13, 14}),
        ],
    )
    def test_offline_its_own_measure_decides(self, by: Any, eta: float, voters: set[int]) -> None:
        decision = confident_offline(with_confidences(*self.ROWS), by, window=2, eta=eta)
        assert {n for g in decision.groups for n in g.nodes} == voters

    def test_traces_without_confidences_vote_with_the_mean_of_the_others(self) -> None:
        rows = with_confidences((0, [8, 8]), (1, []), (2, [4, 4]))
        for decision in (
            confident(rows, "mean", window=2, threshold=5.0),
            confident_offline(rows, "mean", window=2, eta=50),
        ):
            assert outcome(decision) == [(0, 8, (11,)), (1, 8, (12,))]

    def test_without_any_confidence_it_is_the_majority(self) -> None:
        rows = with_confidences((0, []), (1, []), (1, []))
        for decision in (
            confident(rows, "lowest", window=2, threshold=None),
            confident_offline(rows, "lowest", window=2, eta=10),
        ):
            assert outcome(decision) == [(1, 2, (12, 13)), (0, 1, (11,))]

    def test_when_none_of_the_sure_has_an_answer_all_vote(self) -> None:
        rows = with_confidences((None, [9, 9]), (1, [2, 2]), (0, [1, 1]))
        for decision in (
            confident(rows, "lowest", window=2, threshold=9.0),
            confident_offline(rows, "lowest", window=2, eta=10),
        ):
            assert outcome(decision) == [(1, 2, (12,)), (0, 1, (13,))]


rows_of_any_kind = st.lists(
    st.builds(
        dict,
        group=st.none() | st.integers(0, 3),
        scores=st.lists(st.sampled_from([0.0, 0.1, 0.25, 1 / 3, 0.5, 0.7, 1.0]), max_size=3),
        confidences=st.lists(st.sampled_from([0.5, 3.25, 4.0, 7.1]), max_size=6),
        leaves=st.integers(0, 20),
    ),
    max_size=8,
)


def built(rows: list[dict[str, Any]]) -> list[Candidate]:
    """Candidates; every other one is a branch of the first trace, which it leaves somewhere."""
    found = []
    for order, row in enumerate(rows, 1):
        end = 20 + order
        found.append(
            Candidate(
                node=order,
                group=row["group"],
                order=order,
                mean_score=aggregate(row["scores"], "mean"),
                last_score=aggregate(row["scores"], "last"),
                min_score=aggregate(row["scores"], "min"),
                product_score=aggregate(row["scores"], "product"),
                path=((1, row["leaves"]), (order, end)) if order % 2 == 0 else ((order, end),),
                confidences=row["confidences"],
            )
        )
    return found


@pytest.mark.parametrize("name", VOTES)
class TestEveryVote:
    @settings(max_examples=30, deadline=None)
    @given(rows=rows_of_any_kind, shuffling=st.randoms(use_true_random=False))
    def test_does_not_depend_on_the_order_in_which_traces_come(
        self, name: str, rows: list[dict[str, Any]], shuffling: random.Random
    ) -> None:
        given = built(rows)
        shuffled = list(given)
        shuffling.shuffle(shuffled)
        assert VOTES[name](shuffled) == VOTES[name](given)

    @settings(max_examples=30, deadline=None)
    @given(rows=rows_of_any_kind)
    def test_has_each_voter_once_and_a_winner_if_there_is_an_answer(
        self, name: str, rows: list[dict[str, Any]]
    ) -> None:
        given = built(rows)
        groups = VOTES[name](given).groups
        assert bool(groups) == any(c.group is not None for c in given)
        assert len({g.group for g in groups}) == len(groups)
        nodes = [n for g in groups for n in g.nodes]
        assert len(set(nodes)) == len(nodes)
        group_of = {c.node: c.group for c in given}
        assert all(group_of[n] == g.group for g in groups for n in g.nodes)

    @settings(max_examples=30, deadline=None)
    @given(rows=rows_of_any_kind)
    def test_puts_weight_first_then_traces_then_the_earliest(
        self, name: str, rows: list[dict[str, Any]]
    ) -> None:
        groups = VOTES[name](built(rows)).groups
        keys = [(-g.weight, -len(g.nodes), min(g.nodes)) for g in groups]
        assert keys == sorted(keys)


@pytest.mark.parametrize("vote", VOTES.values(), ids=VOTES.keys())
class TestTies:
    def test_more_traces_win(self, vote) -> None:  # type: ignore[no-untyped-def]
        rows = candidates((0, 0.0), (1, 0.0), (1, 0.0))
        assert [g.group for g in vote(rows).groups] == [1, 0]

    def test_then_the_earliest_finished(self, vote) -> None:  # type: ignore[no-untyped-def]
        rows = candidates((1, 0.5), (0, 0.5))
        assert [g.group for g in vote(rows).groups] == [1, 0]

    def test_rounding_decides_none(self, vote) -> None:  # type: ignore[no-untyped-def]
        # added up as they come, 0.3 + 0.2 + 0.1 is less than 0.1 + 0.2 + 0.3
        rows = candidates((0, 0.3), (0, 0.2), (0, 0.1), (1, 0.1), (1, 0.2), (1, 0.3))
        assert [g.group for g in vote(rows).groups] == [0, 1]

    def test_the_order_in_which_traces_come_does_not_matter(self, vote) -> None:  # type: ignore[no-untyped-def]
        rows = candidates((0, 0.1), (1, 0.7), (0, 0.2), (1, None), (None, 0.3), (2, 0.7))
        decisions = {vote(list(order)) for order in itertools.permutations(rows)}
        assert len(decisions) == 1

    def test_no_answer_is_no_winner(self, vote) -> None:  # type: ignore[no-untyped-def]
        assert vote([]).winner is None
        assert vote(candidates((None, 0.5))).winner is None
