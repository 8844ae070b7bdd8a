"""ScorerService: checks a call, has its rows scored with everyone else's, and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np

from prm_worker.batcher import Batcher, BatcherClosedError
from prm_worker.scorer_file import Metadata
from prm_worker.scorers.base import HistoryScorer, Scorer, TracePart
from prm_worker.tensors import (
    decode_history,
    decode_rows,
    encode_projected,
    encode_scores,
    nonfinite_row,
)
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.status import StatusError, Violation, abort, invalid
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1 import scoring_pb2_grpc

log = EventLogger("prm_worker.scoring_service")

SERVICE = "thoughtbeam.v1.ScorerService"
_SHOWN_CHARACTERS = 100  # of a value that a caller sent


class ScoringService(scoring_pb2_grpc.ScorerServiceServicer):
    """Serves one scorer.

    trained_for: what its rows must come from; an empty model_fingerprint or boundary_rule is not checked, the
    hidden size always is. allow_mismatch: rows of another model or rule are scored, and every answer says so.
    """

    def __init__(
        self, batcher: Batcher, trained_for: Metadata, scorer: Scorer, *, allow_mismatch: bool = False
    ) -> None:
        self._batcher = batcher
        self._trained_for = trained_for
        self._scorer = scorer
        self._history = scorer if isinstance(scorer, HistoryScorer) else None
        self._allow_mismatch = allow_mismatch

    async def Score(  # noqa: N802
        self, request: pb.ScoreRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ScoreResponse:
        """Scores of the rows, in their order.

        INVALID_ARGUMENT names the field that is malformed (NONFINITE_ROW: and the row); FAILED_PRECONDITION
        with SCORER_MISMATCH says in what the rows differ from those that the scorer was trained for.
        """
        try:
            return await self._score(request)
        except StatusError as error:
            log.warning("score_refused", reason=error.reason, message=error.message)
            await abort(context, error)

    async def ScoreText(  # noqa: N802
        self, request: pb.ScoreTextRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ScoreTextResponse:
        """FAILED_PRECONDITION with WRONG_SCORER_KIND: a scorer of hidden states reads no text."""
        message = f"this scorer is of kind {self._trained_for.kind} and scores hidden rows: call Score"
        kind = {"kind": self._trained_for.kind}
        await abort(
            context,
            StatusError(grpc.StatusCode.FAILED_PRECONDITION, "WRONG_SCORER_KIND", message, metadata=kind),
        )

    async def DropTraces(  # noqa: N802
        self, request: pb.DropTracesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.DropTracesResponse:
        """Takes effect after the calls that came before."""
        self._batcher.drop(request.tree_id, list(request.nodes))
        return pb.DropTracesResponse()

    async def GetScorerInfo(  # noqa: N802
        self, request: pb.GetScorerInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetScorerInfoResponse:
        """What the scorer is, and the largest call it takes."""
        return pb.GetScorerInfoResponse(
            kind=self._trained_for.kind,
            hidden_size=self._trained_for.hidden_size,
            model_fingerprint=self._trained_for.model_fingerprint,
            boundary_rule=self._trained_for.boundary_rule,
            max_rows=self._batcher.max_rows,
            history_size=self._history.history_size if self._history else 0,
            scorer_id=self._scorer.scorer_id,
            mismatch_allowed=self._allow_mismatch,
        )

    async def _score(self, request: pb.ScoreRequest) -> pb.ScoreResponse:
        rows = decode_rows(request.rows, self._batcher.max_rows)
        _check_traces(request, len(rows))
        mismatch = self._check_origin(request, rows.shape[1])
        parts = self._parts(request)
        try:
            scored = await self._batcher.score(rows, parts)
        except BatcherClosedError:
            message = "the prm worker is stopping"
            raise StatusError(grpc.StatusCode.UNAVAILABLE, "PRM_WORKER_STOPPING", message) from None
        except Exception as error:
            log.exception("scorer_failed", rows=len(rows))
            raise StatusError(
                grpc.StatusCode.INTERNAL, "SCORER_FAILED", f"the scorer failed: {type(error).__name__}"
            ) from error
        overflown = np.isnan(scored.scores)
        if scored.need_history:
            needing = np.isin(np.arange(len(parts)), list(scored.need_history))
            overflown &= ~np.repeat(needing, [part.rows for part in parts])
        if overflown.any():
            raise nonfinite_row(int(overflown.argmax()), "is too large to be scored")
        return pb.ScoreResponse(
            scores=encode_scores(scored.scores),
            projected=None if scored.projected is None else encode_projected(scored.projected),
            need_history=[
                pb.NeedHistory(trace=trace, from_thought=first)
                for trace, first in scored.need_history.items()
            ],
            mismatch=mismatch,
        )

    def _parts(self, request: pb.ScoreRequest) -> Sequence[TracePart]:
        """The traces of a request, for a scorer that keeps histories."""
        if self._history is None:
            return ()
        most, size = self._history.max_thoughts, self._history.history_size
        parts = []
        for index, trace in enumerate(request.traces):
            name = f"traces[{index}]"
            if trace.first_thought + trace.rows > most:
                allowed = f"with its rows it must be at most {most}, for which cache_mb has room"
                raise invalid(Violation(f"{name}.first_thought", f"is {trace.first_thought}; {allowed}"))
            history = None
            if trace.HasField("history"):
                history = decode_history(trace.history, f"{name}.history", trace.first_thought, size)
            parent = trace.parent if trace.HasField("parent") else None
            first, rows, fork = trace.first_thought, trace.rows, trace.fork_thought
            parts.append(TracePart(trace.tree_id, trace.node, first, rows, parent, fork, history))
        return parts

    def _check_origin(self, request: pb.ScoreRequest, hidden_size: int) -> str:
        """What differs, where that is allowed; else an empty text. Raises SCORER_MISMATCH (StatusError)."""
        trained_for = self._trained_for
        pairs: list[tuple[str, str, str]] = [("hidden_size", str(trained_for.hidden_size), str(hidden_size))]
        if trained_for.model_fingerprint:
            pairs.append(("model_fingerprint", trained_for.model_fingerprint, request.model_fingerprint))
        if trained_for.boundary_rule:
            pairs.append(("boundary_rule", trained_for.boundary_rule, request.boundary_rule))
        different = [(name, own, sent[:_SHOWN_CHARACTERS]) for name, own, sent in pairs if own != sent]
        if not different:
            return ""
        described = "; ".join(f"{name} is {sent or 'empty'}, not {own}" for name, own, sent in different)
        if self._allow_mismatch and hidden_size == trained_for.hidden_size:
            return described
        metadata = {name: own for name, own, _ in different}
        metadata.update({f"request_{name}": sent for name, _, sent in different})
        raise StatusError(
            grpc.StatusCode.FAILED_PRECONDITION,
            "SCORER_MISMATCH",
            f"the rows do not come from what this scorer was trained for: {described}",
            metadata=metadata,
        )


def _check_traces(request: pb.ScoreRequest, rows: int) -> None:
    for index, trace in enumerate(request.traces):
        if trace.rows < 1:
            raise invalid(Violation(f"traces[{index}].rows", "is 0; it must be at least 1"))
    counted = sum(trace.rows for trace in request.traces)
    if counted != rows:
        raise invalid(Violation("traces", f"their rows add up to {counted}; rows.shape has {rows}"))
