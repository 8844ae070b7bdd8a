"""Worlds for `play`: traces and scorers of several kinds.

All are deterministic from their seed, and what they say of a trace depends on that trace alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from decoder_worker.tree_view import Trace


@dataclass(frozen=True, slots=True)
class RandomWorld:
    """Lengths and scores at random. Means in tokens. refused: share of rows without a score."""

    seed: int
    length_mean: int = 400
    thought_mean: int = 24
    refused: float = 0.1

    def _draw(self, trace: Trace, what: str) -> random.Random:
        return random.Random(f"{self.seed}/{what}/{trace.number}/{len(trace.thoughts)}")

    def thought(self, trace: Trace) -> int:
        return 1 + int(self._draw(trace, "thought").expovariate(1 / self.thought_mean))

    def length(self, trace: Trace) -> int:
        drawn = self._draw(trace, "length").gauss(self.length_mean, self.length_mean / 4)
        return max(trace.branch_position + 1, min(int(drawn), 4 * self.length_mean))

    def score(self, trace: Trace) -> float | None:
        draw = self._draw(trace, "score")
        return None if draw.random() < self.refused else draw.random()


class ConstantWorld(RandomWorld):
    """Every thought is worth the same: ranks are ties."""

    def score(self, trace: Trace) -> float | None:
        return 0.5


class AdversarialWorld(RandomWorld):
    """The longer a trace, the worse its score: what is about to finish is pruned, newcomers branched."""

    def score(self, trace: Trace) -> float | None:
        return max(0.0, 1 - trace.total_tokens / (5 * self.length_mean))


class SilentWorld(RandomWorld):
    """The scorer refuses everything."""

    def score(self, trace: Trace) -> float | None:
        return None
