"""A scorer's judgement of traces, looked at by depth: what a search would have seen, and what came of it.

A trace's score at a depth is the mean of its thoughts' scores so far, as policies have it. Only independent
roots are judged; branches, which share what they inherit, show how siblings correlate.

Within a question: only traces of the same question are compared, as a search compares them. Over all
questions the figures of a trained scorer are usually higher, because it also sees that a question is hard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from prm_worker.training.metrics import (
    Bin,
    auroc,
    calibration_error,
    correlation,
    draws,
    lowest,
    ranking,
    ratio_interval,
    reliability,
)
from thoughtbeam.runtime.scorer_dataset_reader import Array, Traces

DEPTHS = tuple(range(10, 101, 10))  # percent of a trace's thoughts
TOKEN_DEPTHS = 20  # how many depths in tokens are looked at
SHARED = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)  # bounds of the fractions that siblings share
LEAST_QUESTIONS = 8  # with both kinds of trace, for a depth to count


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """Traces and their scores. means: per trace, the mean score after each thought. thoughts: the single
    scores. depths: per trace, tokens after the prompt at the end of each thought. tokens: of the whole trace.
    question: any number that tells questions apart."""

    means: Sequence[Array]
    thoughts: Sequence[Array]
    depths: Sequence[Array]
    tokens: Array
    right: Array
    question: Array

    @classmethod
    def of(cls, traces: Traces, which: Array, scores: Sequence[Array]) -> Judged:
        """scores: of each thought of these traces."""
        return cls(
            means=[np.cumsum(one, dtype=np.float64) / np.arange(1, len(one) + 1) for one in scores],
            thoughts=scores,
            depths=[traces.depths(int(trace)) for trace in which],
            tokens=traces.tokens[which],
            right=traces.right[which].astype(bool),
            question=traces.question[which],
        )

    def at_share(self, percent: int) -> tuple[Array, Array]:
        """Mean score, and score of the last thought, after this share of each trace's thoughts, at least
        one."""
        places = [max(1, -(-len(one) * percent // 100)) - 1 for one in self.means]
        means = np.array([one[place] for one, place in zip(self.means, places, strict=True)])
        last = np.array([one[place] for one, place in zip(self.thoughts, places, strict=True)])
        return means, last

    def at_tokens(self, tokens: int) -> tuple[Array, Array]:
        """Which traces have come so far and have a score, and their mean scores there."""
        counts = np.array([np.searchsorted(one, tokens, side="right") for one in self.depths])
        there = (self.tokens >= tokens) & (counts > 0)
        scores = np.array([self.means[trace][counts[trace] - 1] for trace in np.flatnonzero(there)])
        return there, scores


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Ranking within questions. pairwise: share of the pairs of a right and a wrong trace that are ranked
    right. low, high: its 95 % interval over questions. mean: of the questions' own AUROCs. wins, pairs: by
    question, [questions]."""

    pairwise: float
    low: float
    high: float
    mean: float
    wins: Array
    pairs: Array


@dataclass(frozen=True, slots=True, eq=False)
class Depth:
    """At one share of the thoughts. auroc: over all questions. ece, bins: of the mean score; thought_ece: of
    the last thought's own. last_pairwise: ranking within questions by that."""

    percent: int
    auroc: float
    within: Ranking
    last_pairwise: float
    ece: float
    thought_ece: float
    bins: Sequence[Bin]

    @property
    def pairwise(self) -> float:
        return self.within.pairwise


@dataclass(frozen=True, slots=True, eq=False)
class TokenDepth:
    """At one depth in tokens: among the traces that have come so far."""

    tokens: int
    traces: int
    questions: int
    within: Ranking


@dataclass(frozen=True, slots=True)
class Pruned:
    """What the lowest k of a question's traces at a depth are. right, wrong: chance that a right or a wrong
    trace is among them; by_chance: were they drawn by lot."""

    tokens: int
    k: int
    traces_per_question: float
    right: float
    wrong: float
    by_chance: float


@dataclass(frozen=True, slots=True)
class Siblings:
    """Pairs of traces that share a fraction in (low, high] of their tokens; both 0: independent roots. right,
    score: correlation of their correctness, and of their final mean scores. agree: share of them that are
    both right or both wrong."""

    low: float
    high: float
    pairs: int
    right: float
    score: float
    agree: float


def rank_within(scores: Array, right: Array, question: Array, questions: int, drawn: Array) -> Ranking:
    """questions: how many there are, numbered from 0. drawn: see metrics.draws."""
    wins, pairs = np.zeros(questions), np.zeros(questions)
    order = np.argsort(question, kind="stable")
    starts = np.flatnonzero(np.diff(question[order], prepend=-1))
    for members in np.split(order, starts[1:]) if len(order) else []:
        place = int(question[members[0]])
        wins[place], pairs[place] = ranking(scores[members], right[members])
    total = pairs.sum()
    low, high = ratio_interval(wins, pairs, drawn)
    both = pairs > 0
    return Ranking(
        pairwise=float(wins.sum() / total) if total else float("nan"),
        low=low,
        high=high,
        mean=float((wins[both] / pairs[both]).mean()) if total else float("nan"),
        wins=wins,
        pairs=pairs,
    )


def by_depth(judged: Judged) -> list[Depth]:
    """At each of DEPTHS."""
    question, drawn = _numbered(judged.question)
    found = []
    for percent in DEPTHS:
        means, last = judged.at_share(percent)
        bins = reliability(means, judged.right)
        found.append(
            Depth(
                percent=percent,
                auroc=auroc(means, judged.right),
                within=rank_within(means, judged.right, question, drawn.shape[1], drawn),
                last_pairwise=rank_within(last, judged.right, question, drawn.shape[1], drawn).pairwise,
                ece=calibration_error(bins),
                thought_ece=calibration_error(reliability(last, judged.right)),
                bins=bins,
            )
        )
    return found


def token_depths(judged: Judged) -> list[int]:
    """The depths in tokens that are looked at: evenly, up to where nine of ten traces have ended."""
    end = float(np.quantile(judged.tokens, 0.9))
    return sorted({max(1, round(end * step / TOKEN_DEPTHS)) for step in range(1, TOKEN_DEPTHS + 1)})


def by_tokens(judged: Judged) -> list[TokenDepth]:
    """At each of token_depths."""
    question, drawn = _numbered(judged.question)
    found = []
    for tokens in token_depths(judged):
        there, scores = judged.at_tokens(tokens)
        within = rank_within(scores, judged.right[there], question[there], drawn.shape[1], drawn)
        found.append(TokenDepth(tokens, int(there.sum()), int((within.pairs > 0).sum()), within))
    return found


def recommended_warmup(depths: Sequence[TokenDepth]) -> int | None:
    """The first depth, in tokens, at which ranking within questions is reliably above chance: the lower end
    of its interval is above 0.5, there and at the next depth, so that one lucky look of many is not enough.
    None: there is no such depth."""
    good = [depth.questions >= LEAST_QUESTIONS and depth.within.low > 0.5 for depth in depths]
    for index, depth in enumerate(depths[:-1]):
        if good[index] and good[index + 1]:
            return depth.tokens
    return None


def pruned(judged: Judged, ks: Sequence[int], warmups: Sequence[int]) -> Iterator[Pruned]:
    """One bottom-K at each of these depths: among the traces of a question that have come so far, if they are
    more than k."""
    for tokens in warmups:
        there, scores = judged.at_tokens(tokens)
        right, question = judged.right[there], judged.question[there]
        for k in ks:
            chances, by_lot, sizes = np.zeros(len(scores)), np.zeros(len(scores)), []
            counted = np.zeros(len(scores), dtype=bool)
            for number in np.unique(question):
                members = np.flatnonzero(question == number)
                if len(members) <= k:
                    continue
                chances[members] = lowest(scores[members], k)
                by_lot[members] = k / len(members)
                counted[members] = True
                sizes.append(len(members))
            if not (counted & right).any() or not (counted & ~right).any():
                continue
            yield Pruned(
                tokens,
                k,
                float(np.mean(sizes)),
                float(chances[counted & right].mean()),
                float(chances[counted & ~right].mean()),
                float(by_lot[counted & right].mean()),
            )


def siblings(traces: Traces, which: Array, scores: Sequence[Array]) -> list[Siblings]:
    """Pairs within questions by the fraction of tokens that they share: shared tokens over the mean length of
    the two. Without any sharing: pairs of roots, which tell how much the question alone decides.

    which: traces, branches too. scores: of their thoughts.
    """
    final = {int(trace): float(np.mean(one)) for trace, one in zip(which, scores, strict=True)}
    fractions, pairs = [], []
    by_question: dict[int, list[int]] = {}
    for trace in which:
        by_question.setdefault(int(traces.question[trace]), []).append(int(trace))
    for members in by_question.values():
        for place, first in enumerate(members):
            for second in members[place + 1 :]:
                shared = _shared_tokens(traces, first, second)
                mean = (traces.tokens[first] + traces.tokens[second]) / 2
                fractions.append(min(1.0, shared / mean))
                pairs.append((first, second))
    found = []
    fraction = np.array(fractions)
    for low, high in [(0.0, 0.0), *pairwise(SHARED)]:
        inside = (fraction > low) & (fraction <= high) if high else fraction == 0
        chosen = [pairs[index] for index in np.flatnonzero(inside)]
        if len(chosen) < 2:
            continue
        first_right, second_right = (traces.right[[pair[side] for pair in chosen]] for side in (0, 1))
        first_score, second_score = (np.array([final[pair[side]] for pair in chosen]) for side in (0, 1))
        found.append(
            Siblings(
                low=low,
                high=high,
                pairs=len(chosen),
                right=correlation(first_right.astype(float), second_right.astype(float)),
                score=correlation(first_score, second_score),
                agree=float((first_right == second_right).mean()),
            )
        )
    return found


def _shared_tokens(traces: Traces, first: int, second: int) -> int:
    """Tokens after the prompt that two traces of one question have from the same ancestor."""
    lines = [_line(traces, first), _line(traces, second)]
    shared = 0
    for ancestor, tokens in lines[0].items():
        if ancestor in lines[1]:
            shared = max(shared, min(tokens, lines[1][ancestor]))
    return shared


def _line(traces: Traces, trace: int) -> dict[int, int]:
    """A trace and its ancestors: how many tokens after the prompt it has from each on."""
    line = {trace: int(traces.tokens[trace])}
    reach = line[trace]
    while (parent := int(traces.parent[trace])) >= 0:
        reach = min(reach, int(traces.inherited[trace]))
        line[parent] = reach
        trace = parent
    return line


def _numbered(question: Array) -> tuple[Array, Array]:
    """Questions numbered from 0, and their bootstrap draws."""
    names, numbers = np.unique(question, return_inverse=True)
    return numbers, draws(len(names))
