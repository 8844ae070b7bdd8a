"""What the simulated model draws: lengths, correctness, scores, confidences and vectors."""

from __future__ import annotations

import math
from itertools import islice
from random import Random
from statistics import correlation, fmean

import pytest

from bench.simulation.world import RIGHT, Lengths, SimulatedTokenizer, State, World
from decoder_worker.answers.extraction import AnswerMode, extract
from decoder_worker.engine.scripted_traces import BLANK, END, score_of

WORLD = World(seed=5)
QUESTION = WORLD.question("question 1")


def whole(trace_id: str, tokens: tuple[int, ...] = QUESTION, world: World = WORLD) -> tuple[int, ...]:
    """A trace that goes on from these tokens to its end."""
    return (*tokens, *world.continuation(trace_id, tokens))


def states(tokens: tuple[int, ...]) -> list[State]:
    return [state for token in tokens if (state := State.of(token)) is not None]


def scores(tokens: tuple[int, ...]) -> list[float]:
    return [score for token in tokens if (score := score_of(token)) is not None]


def is_right(tokens: tuple[int, ...]) -> bool:
    text = SimulatedTokenizer().decode(tokens[len(QUESTION) :])
    answer = extract(text, AnswerMode.BOXED, finish="stop")
    assert answer is not None
    return answer == RIGHT


def boundaries(tokens: tuple[int, ...]) -> list[int]:
    """Where each thought ends."""
    return [at + 1 for at, token in enumerate(tokens) if token == BLANK and at >= len(QUESTION)]


def agreement(fraction: float, *, pairs: int = 400) -> float:
    """How often a branch at this fraction of its parent's thoughts ends as right or wrong as it."""
    same = 0
    for number in range(pairs):
        parent = whole(f"question {number}/1")
        ends = boundaries(parent)
        at = ends[min(int(fraction * len(ends)), len(ends) - 1)]
        same += is_right(parent) == is_right(whole(f"question {number}/2", parent[:at]))
    return same / pairs


def test_lengths_have_the_distribution_that_they_say() -> None:
    lengths = sorted(len(whole(f"question 1/{n}")) - len(QUESTION) for n in range(600))
    off = max(abs((i + 1) / 600 - WORLD.lengths.within(length)) for i, length in enumerate(lengths))
    assert off < 1.95 / math.sqrt(600)


def test_a_length_beyond_what_is_known_is_one_of_those_that_are_longer() -> None:
    lengths = Lengths(median=100.0, sigma=0.5)
    draws = [lengths.draw(random, beyond=150) for random in map(Random, range(500))]
    assert min(draws) > 150
    known = lengths.within(150)
    shorter = sum(1 for draw in draws if draw <= 200) / 500
    assert shorter == pytest.approx((lengths.within(200) - known) / (1 - known), abs=0.07)


def test_a_trace_that_stops_at_every_boundary_is_as_long_as_one_that_does_not() -> None:
    def stopping(trace_id: str) -> int:
        tokens = QUESTION
        while tokens[-1] != END:
            for token in WORLD.continuation(trace_id, tokens):
                tokens = (*tokens, token)
                if token == BLANK:
                    break
        return len(tokens) - len(QUESTION)

    straight = fmean(len(whole(f"question 1/{n}")) - len(QUESTION) for n in range(300))
    assert fmean(stopping(f"question 1/{n}") for n in range(300)) == pytest.approx(straight, rel=0.06)


def test_a_trace_is_the_same_each_time_and_another_one_is_another() -> None:
    assert whole("question 1/1") == whole("question 1/1")
    assert whole("question 1/1") != whole("question 1/2")
    assert whole("question 1/1") != whole("question 1/1", world=World(seed=6))


def test_questions_share_no_prompt() -> None:
    assert len(QUESTION) == WORLD.prompt
    assert WORLD.question("question 1")[:16] != WORLD.question("question 2")[:16]


def test_a_branch_has_its_parents_past_and_a_future_of_its_own() -> None:
    parent = whole("question 1/1")
    at = boundaries(parent)[4]
    branch, other = whole("question 1/2", parent[:at]), whole("question 1/3", parent[:at])
    assert branch[:at] == parent[:at]
    assert len({parent, branch, other}) == 3
    past, future = states(parent[:at])[-1], states(branch[at:])[0]
    assert future.approach == past.approach
    assert abs(future.z - past.z) < 4 * WORLD.spread * math.sqrt(1.5 * WORLD.thought / WORLD.lengths.median)


def test_the_later_the_branch_the_more_it_ends_as_its_parent() -> None:
    """Traces of one question alone agree in more than half of the pairs already."""
    early, middle, late = agreement(0.0), agreement(0.6), agreement(1.0)
    assert early < middle < late
    assert late > 0.9


def test_a_branch_after_the_last_thought_only_answers() -> None:
    parent = whole("question 1/1")
    at = boundaries(parent)[-1]
    assert whole("question 1/2", parent[:at]) == parent


def test_a_trace_that_broke_off_inside_a_thought_or_its_answer_goes_on() -> None:
    parent = whole("question 1/1")
    first, second = boundaries(parent)[:2]
    for at in range(first, second):
        again = whole("question 1/1", parent[:at])
        assert states(again)[0] == states(parent)[0]
        assert len(scores(again)) == len(states(again))
        assert again[-1] == END
    assert is_right(whole("question 1/1", parent[:-4])) == is_right(parent)


def test_late_scores_tell_more_of_the_end_than_early_ones() -> None:
    traces = [whole(f"question {n}/1") for n in range(400)]
    right = [float(is_right(trace)) for trace in traces]
    first = correlation([scores(trace)[0] for trace in traces], right)
    last = correlation([scores(trace)[-1] for trace in traces], right)
    assert 0.2 < first < last < 0.95


def test_confidence_follows_the_score_and_flickers() -> None:
    def drawn(score: float) -> list[float]:
        return [WORLD.confidence("question 1/1", position, score) for position in range(2000)]

    assert drawn(0.4) == drawn(0.4)
    assert fmean(drawn(0.9)) - fmean(drawn(0.4)) == pytest.approx(0.5 * WORLD.doubt, abs=0.01)
    assert len(set(drawn(0.4))) > 1000
    assert min(drawn(0.0)) >= 0.0


def test_thoughts_of_one_approach_are_alike_and_of_two_are_not() -> None:
    def cosine(one: str, other: str) -> float:
        return sum(a * b for a, b in zip(WORLD.embedding(one), WORLD.embedding(other), strict=True))

    def texts(approach: int) -> list[str]:
        tokens = ((State(approach, z / 10).token, BLANK) for z in range(-20, 20))
        return [SimulatedTokenizer().decode(pair) for pair in tokens]

    alike = [cosine(a, b) for a, b in zip(texts(1), islice(texts(1), 1, None), strict=False)]
    different = [cosine(a, b) for a, b in zip(texts(1), texts(2), strict=True)]
    assert min(alike) > 0.7
    assert any(c >= 0.98 for c in alike)
    assert not all(c >= 0.98 for c in alike)
    assert max(different) < 0.7
    assert cosine(texts(1)[0], texts(1)[0]) == pytest.approx(1.0)
