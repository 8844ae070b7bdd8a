"""The order in which traces stand: by mean score, best first."""

from __future__ import annotations

from collections.abc import Collection

from decoder_worker.tree_view import Trace


def ranked(traces: Collection[Trace]) -> list[Trace]:
    """By mean score, descending; ties go to the lower node number.

    A trace without a scored thought ranks at the mean of those that have one, so that newcomers are neither
    killed nor spared (this project's choice: the papers are silent, or rank them at 0).
    """
    means = [(t.mean_score, t) for t in traces]
    scores = [mean for mean, _ in means if mean is not None]
    middle = sum(scores) / len(scores) if scores else 0.0
    order = sorted((-(middle if mean is None else mean), t.number, t) for mean, t in means)
    return [t for _, _, t in order]
