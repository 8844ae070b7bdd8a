"""Votes over finished traces; ties are never left to chance."""

from __future__ import annotations

import itertools

import pytest

from decoder_worker.answers.votes import Candidate, best, majority, weighted


def candidates(*rows: tuple[int | None, float | None]) -> list[Candidate]:
    """(group, score) of each trace, in the order of finishing; all three scores are the same."""
    return [
        Candidate(
            node=10 + order, group=group, order=order, mean_score=score, last_score=score, min_score=score
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


@pytest.mark.parametrize(("by", "winner"), [("mean", 0), ("last", 1), ("min", 2)])
def test_best_by(by: str, winner: int) -> None:
    rows = [
        Candidate(1, 0, 1, 0.9, 0.1, 0.1),
        Candidate(2, 1, 2, 0.1, 0.9, 0.1),
        Candidate(3, 2, 3, 0.1, 0.1, 0.9),
    ]
    assert best(rows, by).groups[0].group == winner  # type: ignore[arg-type]


def test_best_without_any_score_is_the_majority() -> None:
    assert best(candidates((0, None), (1, None), (1, None)), "mean").groups[0].group == 1


@pytest.mark.parametrize("vote", [majority, weighted, lambda rows: best(rows, "mean")])
class TestTies:
    def test_more_traces_win(self, vote) -> None:  # type: ignore[no-untyped-def]
        rows = candidates((0, 0.0), (1, 0.0), (1, 0.0))
        assert [g.group for g in vote(rows).groups] == [1, 0]

    def test_then_the_earliest_finished(self, vote) -> None:  # type: ignore[no-untyped-def]
        rows = candidates((1, 0.5), (0, 0.5))
        assert [g.group for g in vote(rows).groups] == [1, 0]

    def test_the_order_in_which_traces_come_does_not_matter(self, vote) -> None:  # type: ignore[no-untyped-def]
        rows = candidates((0, 0.1), (1, 0.7), (0, 0.2), (1, None), (None, 0.3), (2, 0.7))
        decisions = {vote(list(order)) for order in itertools.permutations(rows)}
        assert len(decisions) == 1

    def test_no_answer_is_no_winner(self, vote) -> None:  # type: ignore[no-untyped-def]
        assert vote([]).winner is None
        assert vote(candidates((None, 0.5))).winner is None
