"""What can be set on Gambit (arXiv 2608.08020); the symbols are explained in gambit.py.

The `paper` profile holds the paper's values, for traces of tens of thousands of tokens. `tiny` is for the
bundled model, whose traces have hundreds: Δ is about two thoughts per trace, and w about the length after
which its scores are better than chance.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from decoder_worker.policies.parameters import (
    MOST_TRACES,
    OURS,
    Conflict,
    Limits,
    Parameters,
    choice,
    flag,
    integer,
    real,
)

PAPER = "arXiv 2608.08020"
ADDED = "this project; not in the paper"


@dataclass(frozen=True, slots=True)
class GambitParameters(Parameters):
    C: int = integer(
        "Logical capacity: traces that count at once.",
        symbol="C",
        source=PAPER,
        paper=256,
        tiny=24,
        minimum=1,
        maximum=MOST_TRACES,
        cap="max_capacity",
    )
    K: int = integer(
        "Exchange size: traces that a tournament prunes and branches; at most half of C.",
        symbol="K",
        source=PAPER,
        paper=16,
        tiny=4,
        minimum=0,
        maximum=MOST_TRACES // 2,
    )
    interval: int = integer(
        "Scored thoughts between two tournaments.",
        symbol="Δ",
        source=PAPER,
        paper=200,
        tiny=48,
        minimum=1,
        maximum=1_000_000,
    )
    interval_scope: Literal["tree", "trace"] = choice(
        "What the interval counts: all thoughts of the tree, or those of some one trace.",
        source=OURS,
        paper="tree",
        tiny="tree",
        choices=("tree", "trace"),
    )
    warmup: int = integer(
        "Tokens that a trace must have generated before it may be branched.",
        symbol="w",
        source=PAPER,
        paper=12_000,
        tiny=80,
        minimum=0,
        maximum=10_000_000,
        cap="max_context",
    )
    warmup_scope: Literal["own", "total"] = choice(
        "Which tokens the warm-up counts: a trace's own, or those of the whole sequence.",
        source=OURS,
        paper="own",
        tiny="own",
        choices=("own", "total"),
    )
    high_water: float = real(
        "Share of the engine's KV blocks above which the lowest live traces are evicted to ghosts; 1: never.",
        symbol="r",
        source=PAPER,
        paper=0.9,
        tiny=0.9,
        minimum=0.05,
        maximum=1.0,
    )
    N_max: int = integer(
        "Finished traces that end the search.",
        symbol="N_max",
        source=PAPER,
        paper=256,
        tiny=24,
        minimum=1,
        maximum=1_000_000,
    )
    child_temperature: float | None = real(
        "Sampling temperature of branches; null: that of the roots.",
        source=PAPER,
        paper=None,
        tiny=None,
        minimum=0.0,
        maximum=2.0,
    )
    refill: bool = flag(
        "Whether a finished trace's place is filled by a branch; if not, the traces left go on exchanging.",
        source=OURS,
        paper=True,
        tiny=True,
    )

    unscored: Literal["mean", "zero"] = choice(
        "Where a trace without a score ranks: at the mean of the scored, or at 0.",
        source=OURS,
        paper="mean",
        tiny="mean",
        choices=("mean", "zero"),
    )
    vote: Literal["weighted", "decorrelated"] = choice(
        "Weight of a finished trace: its mean score; or that, times the mean over its positions of one over "
        "the finished traces that share the position.",
        source=f"weighted: {PAPER}; decorrelated: this project",
        paper="weighted",
        tiny="weighted",
        choices=("weighted", "decorrelated"),
    )
    revive_ghosts: bool = flag(
        "Whether a ghost in the upper half of the ranking returns once memory is free again.",
        source=ADDED,
        paper=False,
        tiny=False,
    )
    revive_margin: float = real(
        "How far below the high-water mark KV use must be for a ghost to return.",
        source=ADDED,
        paper=0.1,
        tiny=0.1,
        minimum=0.0,
        maximum=1.0,
    )
    revive_interval: int = integer(
        "Engine steps after which one ghost may return, and then the next.",
        source=ADDED,
        paper=200,
        tiny=20,
        minimum=1,
        maximum=1_000_000,
        cap="max_context",
    )
    stable_thoughts: int = integer(
        "Confidence-gated warm-up: a trace may be branched once its place in the ranking has been stable "
        "over so many own thoughts; 0: no such condition.",
        symbol="m",
        source=ADDED,
        paper=0,
        tiny=0,
        minimum=0,
        maximum=10_000,
        cap="max_context",
    )
    stable_within: float = real(
        "Share of the ranking within which a place is stable.",
        source=ADDED,
        paper=0.25,
        tiny=0.25,
        minimum=0.0,
        maximum=1.0,
    )
    reserve: int = integer(
        "Uncertainty reserve: so many of the most uncertain traces are exempt from a tournament's pruning; "
        "at most C - 2K.",
        symbol="u",
        source=ADDED,
        paper=0,
        tiny=0,
        minimum=0,
        maximum=MOST_TRACES,
    )

    def conflicts(self, limits: Limits) -> Iterable[Conflict]:
        if self.K > self.C // 2:
            yield Conflict(
                "K",
                frozenset({"K", "C"}),
                f"must be a whole number from 0 to {self.C // 2} (half of C = {self.C}), not {self.K}",
            )
        if self.N_max > self.C and not self.refill:
            yield Conflict(
                "N_max",
                frozenset({"N_max", "C", "refill"}),
                f"must be a whole number from 1 to {self.C} when refill is off, not {self.N_max}: "
                f"no more than the C = {self.C} first traces can finish",
            )
        if self.interval_scope == "trace" and self.interval >= limits.max_context:
            yield Conflict(
                "interval",
                frozenset({"interval", "interval_scope"}),
                f"must be a whole number from 1 to {limits.max_context - 1} when interval_scope is trace, "
                f"not {self.interval}: a trace has at most {limits.max_context} tokens",
            )
        if self.reserve and self.K <= self.C // 2 and self.reserve > self.C - 2 * self.K:
            yield Conflict(
                "reserve",
                frozenset({"reserve", "C", "K"}),
                f"must be a whole number from 0 to {self.C - 2 * self.K} (C - 2K), not {self.reserve}",
            )
        if self.reserve and self.K == 0:
            yield Conflict(
                "reserve",
                frozenset({"reserve", "K"}),
                f"must be 0 when K is 0, not {self.reserve}: no tournament prunes",
            )
        if self.stable_thoughts and self.K == 0 and not self.refill:
            yield Conflict(
                "stable_thoughts",
                frozenset({"stable_thoughts", "K", "refill"}),
                f"must be 0 when K is 0 and refill is off, not {self.stable_thoughts}: nothing is branched",
            )
        if self.revive_ghosts and self.high_water >= 1:
            yield Conflict(
                "revive_ghosts",
                frozenset({"revive_ghosts", "high_water"}),
                "must be false when high_water is 1: nothing becomes a ghost",
            )
        if self.revive_ghosts and self.revive_margin >= self.high_water:
            yield Conflict(
                "revive_margin",
                frozenset({"revive_ghosts", "revive_margin", "high_water"}),
                f"must be a number from 0 to below {self.high_water} (high_water), not {self.revive_margin}",
            )
        if self.child_temperature is not None and self.K == 0 and not self.refill:
            yield Conflict(
                "child_temperature",
                frozenset({"child_temperature", "K", "refill"}),
                "must be null when K is 0 and refill is off: nothing is branched",
            )
