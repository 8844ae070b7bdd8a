"""A row on its way through the scoring client."""

from __future__ import annotations

from dataclasses import dataclass

from decoder_worker.scoring.base import Deliver, ScoredRow
from decoder_worker.scoring.wire import BoundaryRow


@dataclass(slots=True, eq=False)
class Queued:
    """since: loop time of its submission. score, error, projected, mismatch: see ScoredRow. forgotten: it is
    not to be delivered any more."""

    row: BoundaryRow
    deliver: Deliver
    since: float
    score: float | None = None
    error: str = ""
    projected: bytes = b""
    mismatch: str = ""
    forgotten: bool = False

    @property
    def settled(self) -> bool:
        """Whether it has a score, or an error."""
        return self.score is not None or bool(self.error)

    @property
    def trace(self) -> tuple[str, int]:
        return self.row.tree_id, self.row.node

    @property
    def format(self) -> tuple[str, int]:
        """Hidden rows of one call agree in this."""
        return self.row.row.dtype, len(self.row.row.data)

    @property
    def scored(self) -> ScoredRow:
        return ScoredRow(self.row, self.score, self.error, self.projected, self.mismatch)
