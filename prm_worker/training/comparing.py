"""Two scorers side by side, on the same traces, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from prm_worker.training.judging import LEAST_QUESTIONS, Depth
from prm_worker.training.metrics import difference_interval, draws


@dataclass(frozen=True, slots=True)
class Comparison:
    """second against first. words: one or two sentences."""

    first: str
    second: str
    words: str


def compare(scorers: Sequence[tuple[str, str, Sequence[Depth]]]) -> list[Comparison]:
    """Every pair of scorers (name, kind, its depths), each against those before it; mlp before sequence."""
    ordered = sorted(scorers, key=lambda one: one[1] == "sequence")
    return [_compared(first, second) for first, second in combinations(ordered, 2)]


def _compared(
    first: tuple[str, str, Sequence[Depth]], second: tuple[str, str, Sequence[Depth]]
) -> Comparison:
    one, other = (f"{name} ({kind})" for name, kind, _ in (second, first))
    words = f"Within questions, {one} against {other}: "
    questions = min(int((depth.within.pairs > 0).sum()) for depth in first[2])
    if questions < LEAST_QUESTIONS:
        words += f"{LEAST_QUESTIONS} questions with right and wrong traces are needed, here: {questions}"
        return Comparison(first[0], second[0], f"{words}. So neither is shown to be better.")
    signs = _signs(first[2], second[2])
    places = {
        sign: [depth.percent for depth, own in zip(first[2], signs, strict=True) if own == sign]
        for sign in (1, -1, 0)
    }
    words += "; ".join(
        f"{said} at {_depths(places[sign])} of the thoughts"
        for sign, said in (
            (1, "ranks better"),
            (-1, "ranks worse"),
            (0, "is not shown to rank better or worse"),
        )
        if places[sign]
    )
    if not places[1]:
        words += f". So {one} is not shown to be better than {other} on these questions"
    elif rest := sorted(places[-1] + places[0]):
        words += f". So {one} is not shown to be better than {other} at {_depths(rest)}"
    return Comparison(first[0], second[0], f"{words}.")


def _signs(first: Sequence[Depth], second: Sequence[Depth]) -> list[int]:
    """At each depth: 1 where the second is shown to rank better than the first, -1 where worse, else 0. A
    depth beside it must say the same, so that one lucky look of many is not enough."""
    drawn = draws(len(first[0].within.wins))
    alone = [0]
    for mine, theirs in zip(second, first, strict=True):
        low, high = difference_interval(mine.within.wins, theirs.within.wins, theirs.within.pairs, drawn)
        alone.append(int(low > 0) - int(high < 0))
    alone.append(0)
    return [
        sign if sign in (before, after) else 0
        for before, sign, after in zip(alone, alone[1:], alone[2:], strict=False)
    ]


def _depths(percents: Sequence[int]) -> str:
    """Depths in steps of 10 as ranges, for example `10–30 %, 50 %`."""
    ranges: list[list[int]] = []
    for percent in percents:
        if ranges and percent == ranges[-1][1] + 10:
            ranges[-1][1] = percent
        else:
            ranges.append([percent, percent])
    return ", ".join(f"{low} %" if low == high else f"{low}–{high} %" for low, high in ranges)
