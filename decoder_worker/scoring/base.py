"""The seam between a search and what scores its thoughts: a prm worker, or the engine's own confidences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.scoring.wire import BoundaryRow

# Of a thought that has no score: by its model's doing, not for want of a scorer, so that no other is missing.
UNSCORABLE = ("NONFINITE_ROW", "STEP_TOO_LONG")


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """The outcome for one row. score: in [0, 1]; None when it was refused or lost, then `error` says why
    (`NONFINITE_ROW`, `STEP_TOO_LONG`, `SCORER_LOST`, `SCORER_CHANGED`, `BAD_SCORES`, `NO_CONFIDENCE`, or the
    reason the server gave). projected: of a scorer that keeps a history, what it keeps of the thought,
    float16 [history size]. mismatch: what differs from what the scorer was trained for, where it scores all
    the same.
    """

    row: BoundaryRow
    score: float | None
    error: str = ""
    projected: bytes = b""
    mismatch: str = ""


Deliver: TypeAlias = Callable[[Sequence[ScoredRow]], None]


class Scoring(Protocol):
    """What scores thoughts. Trees are named by their `scoring_id`. None of these wait."""

    @property
    def scorer(self) -> ScorerInfo: ...

    def submit(self, rows: Sequence[BoundaryRow], deliver: Deliver) -> None:
        """Takes rows to be scored. `deliver` gets each of them back exactly once, later, unless its tree is
        forgotten; the rows of one trace in the order of their submission. It must not raise."""
        ...

    def drop(self, tree_id: str, node: int) -> None:
        """The trace has ended and all its rows have come back: nothing of it needs to be kept."""
        ...

    def forget(self, tree_id: str) -> None:
        """The tree has ended: nothing of it is delivered afterwards, nor kept."""
        ...
