"""The scorer that needs no training and no prm worker: the model's own confidence in a thought.

With c the mean over the thought's tokens of minus the mean log-probability of the k = 20 most probable tokens
in their place (DeepConf, arXiv 2508.15260), as far as it is known, the score is 1 − ln k / c. c is at least
ln k, which it has where all 20 are equally probable, so that the score lies in [0, 1).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from decoder_worker.scoring.base import Deliver, ScoredRow
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.scoring.wire import BoundaryRow
from thoughtbeam.runtime.scorers import CONFIDENCE, CONFIDENCE_TOKENS


def confidence_score(confidence: float) -> float:
    """The score of a thought. confidence: c above; 0 where it is not known."""
    return max(0.0, 1.0 - math.log(CONFIDENCE_TOKENS) / confidence) if confidence > 0 else 0.0


class ConfidenceScoring:
    """The `Scoring` whose rows bring what scores them."""

    scorer = ScorerInfo(kind=CONFIDENCE, scorer_id=CONFIDENCE)

    def submit(self, rows: Sequence[BoundaryRow], deliver: Deliver) -> None:
        # not at once: a search hears of a step's scores after it has heard of all else in the step
        asyncio.get_running_loop().call_soon(deliver, [_scored(row) for row in rows])

    def drop(self, tree_id: str, node: int) -> None:
        pass

    def forget(self, tree_id: str) -> None:
        pass


def _scored(row: BoundaryRow) -> ScoredRow:
    if row.confidence is None:
        return ScoredRow(row, None, "NO_CONFIDENCE")
    return ScoredRow(row, confidence_score(row.confidence))
