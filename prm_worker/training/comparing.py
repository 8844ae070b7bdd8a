"""Two scorers side by side, on the same traces, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from prm_worker.training.judging import Depth
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
    better: list[int] = []
    worse: list[int] = []
    same: list[int] = []
    drawn = draws(len(first[2][0].within.wins))
    for mine, theirs in zip(second[2], first[2], strict=True):
        low, high = difference_interval(mine.within.wins, theirs.within.wins, theirs.within.pairs, drawn)
        (better if low > 0 else worse if high < 0 else same).append(mine.percent)
    one, other = (f"{name} ({kind})" for name, kind, _ in (second, first))
    found = [
        f"{said} at {_depths(percents)} of the thoughts"
        for said, percents in (
            ("ranks better", better),
            ("ranks worse", worse),
            ("is not shown to rank better or worse", same),
        )
        if percents
    ]
    words = f"Within questions, {one} against {other}: {'; '.join(found)}."
    if not better:
        words += f" So {one} is not better than {other} on these questions."
    elif worse or same:
        words += f" So {one} is not better than {other} at {_depths(sorted(worse + same))}."
    return Comparison(first[0], second[0], words)


def _depths(percents: Sequence[int]) -> str:
    """Depths in steps of 10 as ranges, for example `10–30 %, 50 %`."""
    ranges: list[list[int]] = []
    for percent in percents:
        if ranges and percent == ranges[-1][1] + 10:
            ranges[-1][1] = percent
        else:
            ranges.append([percent, percent])
    return ", ".join(f"{low} %" if low == high else f"{low}–{high} %" for low, high in ranges)
