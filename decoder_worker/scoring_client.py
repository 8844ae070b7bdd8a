"""Sends boundary rows to the prm worker and hands back scores, batched across searches."""

from __future__ import annotations

from dataclasses import dataclass

from decoder_worker.engine.base import HiddenRow


@dataclass(frozen=True, slots=True)
class BoundaryRow:
    """One boundary to score. thought: its index in the trace's own thoughts, from 0."""

    tree_id: str
    node: int
    thought: int
    first_thought: int
    row: HiddenRow


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """The outcome for one row. score: in [0, 1]; None when it was refused or lost, then `error` says why
    (`NONFINITE_ROW`, `SCORER_LOST`, or the reason the server gave)."""

    row: BoundaryRow
    score: float | None
    error: str = ""
