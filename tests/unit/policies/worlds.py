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

    def confidences(self, trace: Trace, tokens: int) -> list[float]:
        draw = self._draw(trace, "confidence")
        level = draw.uniform(4, 12)
        return [draw.gauss(level, 1.0) for _ in range(tokens)]

    def embedding(self, trace: Trace, index: int) -> list[float] | None:
        """One of a few directions, a little off."""
        draw = random.Random(f"{self.seed}/vector/{trace.number}/{index}")
        if draw.random() < self.refused:
            return None
        vector = [0.05 * draw.random() for _ in range(6)]
        vector[draw.randrange(6)] += 1.0
        return vector

    def answer(self, trace: Trace) -> str | None:
        return self._draw(trace, "answer").choice(("29", "52", "7", None))


@dataclass(frozen=True, slots=True)
class ConstantWorld(RandomWorld):
    """Every thought is worth the same: ranks are ties."""

    constant: float = 0.5

    def score(self, trace: Trace) -> float | None:
        return self.constant

    def confidences(self, trace: Trace, tokens: int) -> list[float]:
        return [0.1] * tokens

    def embedding(self, trace: Trace, index: int) -> list[float] | None:
        return [0.6, 0.8]

    def answer(self, trace: Trace) -> str | None:
        return "29"


class AdversarialWorld(RandomWorld):
    """The longer a trace, the worse its score: what is about to finish is pruned, newcomers branched."""

    def score(self, trace: Trace) -> float | None:
        return max(0.0, 1 - trace.total_tokens / (5 * self.length_mean))

    def confidences(self, trace: Trace, tokens: int) -> list[float]:
        """Later traces are less sure than earlier ones, and every trace less and less."""
        sure = 12.0 - 0.1 * trace.number
        return [sure - 0.001 * (trace.total_tokens + i) for i in range(tokens)]

    def embedding(self, trace: Trace, index: int) -> list[float] | None:
        """All the same, one way or the other round."""
        return [1.0, 1.0] if trace.number % 2 else [-1.0, -1.0]

    def answer(self, trace: Trace) -> str | None:
        return str(trace.number)


class SilentWorld(RandomWorld):
    """The scorer refuses everything, no confidence and no vector comes, and no trace has an answer."""

    def score(self, trace: Trace) -> float | None:
        return None

    def confidences(self, trace: Trace, tokens: int) -> list[float]:
        return []

    def embedding(self, trace: Trace, index: int) -> list[float] | None:
        return None

    def answer(self, trace: Trace) -> str | None:
        return None
