"""What became of questions under one policy, as every comparison of policies states it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from bench.report import quantile, quantile_interval, wilson

QUANTILES = (50, 90, 97, 99)


class Run(Protocol):
    """One question under one policy. latency: seconds from its acceptance to its end; queued: of them, before
    it ran. generated: tokens of the whole tree; recomputed: those prefilled again. stopped: traces which
    others made needless: cancelled at the end, or of the N asked for never begun."""

    @property
    def right(self) -> bool: ...
    @property
    def latency(self) -> float: ...
    @property
    def queued(self) -> float: ...
    @property
    def roots(self) -> int: ...
    @property
    def branches(self) -> int: ...
    @property
    def finished(self) -> int: ...
    @property
    def pruned(self) -> int: ...
    @property
    def stopped(self) -> int: ...
    @property
    def evictions(self) -> int: ...
    @property
    def generated(self) -> int: ...
    @property
    def recomputed(self) -> int: ...


# what a policy has to have done; the others do nothing by definition
_ACTS: Mapping[str, Callable[[Sequence[Run]], bool]] = {
    "gambit": lambda runs: total(runs, "branches") > 0 and total(runs, "pruned") > 0,
    "sart": lambda runs: total(runs, "pruned") > 0,
    "sart_no_prune": lambda runs: total(runs, "stopped") > 0,
    "step": lambda runs: total(runs, "pruned") > 0,
    "deepconf": lambda runs: total(runs, "pruned") + total(runs, "stopped") > 0,
    "slim_sc": lambda runs: total(runs, "pruned") > 0,
    "rebase": lambda runs: total(runs, "branches") > 0 and total(runs, "pruned") > 0,
}


def never_begun(values: Mapping[str, object], roots: int) -> int:
    """Of the N traces that a policy was asked for. values: its parameters."""
    n = values.get("N", roots)
    assert isinstance(n, int)
    return max(0, n - roots)


def total(runs: Sequence[Run], name: str) -> float:
    """The sum of a field."""
    return float(sum(getattr(run, name) for run in runs))


def acted(policy: str, runs: Sequence[Run]) -> bool:
    """Whether a policy did what it is for; a row in which it did not is no result."""
    return policy not in _ACTS or _ACTS[policy](runs)


def summary(policy: str, runs: Sequence[Run], seconds: float) -> dict[str, object]:
    """The numbers of a row. seconds: that all the runs took together."""
    count, right = len(runs), sum(run.right for run in runs)
    traces = total(runs, "roots") + total(runs, "branches")

    def seconds_of(pick: Callable[[Run], float]) -> dict[str, object]:
        values = [pick(run) for run in runs]
        return {f"p{q}": quantile(values, q / 100) for q in QUANTILES} | {
            "p97_interval": quantile_interval(values, 0.97)
        }

    return {
        "policy": policy,
        "requests": count,
        "right": right,
        "accuracy": right / count,
        "interval": wilson(right, count),
        "generated": total(runs, "generated") / count,
        "unique": total(runs, "generated") / traces,
        "latency": seconds_of(lambda run: run.latency),
        "queued": seconds_of(lambda run: run.queued),
        "inference": seconds_of(lambda run: run.latency - run.queued),
        "traces_per_second": total(runs, "finished") / seconds,
        **{
            name: total(runs, name) / count
            for name in ("branches", "pruned", "stopped", "evictions", "recomputed")
        },
        "acted": acted(policy, runs),
    }


# ---- cells of a table, from a summary

_IDLE = "(did not act: no result)"
_TIMES = {"latency": "latency", "queueing": "queued", "inference": "inference"}  # columns, fields
TIMES = tuple(f"{column} P50 / P97 [95 %], s" for column in _TIMES)
ACCURACY, ACTIONS = "right, 95 % interval", "branches / prunings / stops / evictions per question"


def accuracy(row: Mapping[str, object]) -> str:
    """For the column ACCURACY."""
    return f"{row['right']}/{row['requests']} = {_with_interval(row, 3)}"


def share(of: object) -> str:
    """A share, which may be of nothing: None."""
    return f"{of:.3f}" if isinstance(of, float) else "–"


def short(row: Mapping[str, object]) -> str:
    """Accuracy and tokens in one cell."""
    cell = f"{_with_interval(row, 2)} · {thousands(row['generated'], 1)}"
    return cell if row["acted"] else f"{cell} {_IDLE}"


def _with_interval(row: Mapping[str, object], digits: int) -> str:
    interval = row["interval"]
    assert isinstance(interval, Sequence)
    low, high = interval
    return f"{row['accuracy']:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def actions(row: Mapping[str, object]) -> str:
    """For the column ACTIONS."""
    did = " / ".join(f"{row[name]:.1f}" for name in ("branches", "pruned", "stopped", "evictions"))
    return did if row["acted"] else f"{did} {_IDLE}"


def times(row: Mapping[str, object], name: str, *quantiles: int) -> str:
    """Seconds: some quantiles of `latency`, `queued` or `inference`."""
    values = row[name]
    assert isinstance(values, Mapping)
    return " / ".join(f"{values[f'p{q}']:.1f}" for q in quantiles)


def times_with_intervals(row: Mapping[str, object]) -> list[str]:
    """For the columns TIMES: P50 and P97, the latter with its interval."""
    return [_with_p97_interval(row, name) for name in _TIMES.values()]


def _with_p97_interval(row: Mapping[str, object], name: str) -> str:
    values = row[name]
    assert isinstance(values, Mapping)
    low, high = values["p97_interval"]
    return f"{times(row, name, 50, 97)} [{low:.1f}, {high:.1f}]"


def thousands(tokens: object, digits: int = 2) -> str:
    """Tokens, in thousands."""
    assert isinstance(tokens, float)
    return f"{tokens / 1000:.{digits}f} k"
