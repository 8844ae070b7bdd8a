"""From a finished trace to what a vote sees of it."""

from __future__ import annotations

from decoder_worker.answers.votes import Candidate, aggregate
from decoder_worker.tree_view import Trace


def candidate(trace: Trace, group: int | None) -> Candidate:
    """group: index of its group of equal answers; None: no answer."""
    scores = trace.scores()
    return Candidate(
        node=trace.number,
        group=group,
        order=trace.finish_order or 0,
        mean_score=trace.mean_score,
        last_score=aggregate(scores, "last"),
        min_score=aggregate(scores, "min"),
        product_score=aggregate(scores, "product"),
        path=tuple(trace.path()),
        confidences=trace.confidences,
    )
