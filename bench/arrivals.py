"""Load: questions that arrive at random, at a multiple of what self_consistency can serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

MEASURED = "self_consistency"  # whose capacity a load is a multiple of
_WARM, _COOL = 0.2, 0.8  # of the runs: between them the engine is full


def moments(rate: float, random: Random) -> Iterator[float]:
    """When questions arrive, in seconds: a Poisson process of so many a second, without end."""
    now = 0.0
    while True:
        now += random.expovariate(rate)
        yield now


def steady_rate(ended: Sequence[float]) -> float:
    """Runs per second while more of them waited than could run. ended: when each did, in seconds, in order;
    at least two. The first and the last of them are left out, when the engine was not full."""
    first, last = int(_WARM * len(ended)), int(_COOL * len(ended))
    return (last - first) / (ended[last] - ended[first])
