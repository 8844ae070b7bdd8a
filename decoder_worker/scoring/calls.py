"""What one batch of rows asks of a prm worker: one call after the other, none above the size of a message."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.scoring.queued import Queued
from decoder_worker.scoring.text_wire import encode_texts, text_bytes
from decoder_worker.scoring.wire import (
    Run,
    decode_projected,
    decode_scores,
    encode_request,
    request_order,
    run_bytes,
)
from thoughtbeam.runtime.rpc import MAX_MESSAGE_BYTES
from thoughtbeam.v1 import scoring_pb2 as pb

if TYPE_CHECKING:
    from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceAsyncStub

# Bytes of rows, histories and texts in one call: a message has room for all else.
CALL_BYTES = MAX_MESSAGE_BYTES // 2
# Calls for one batch: without histories; with what of them is missing; and, for a prm worker that has
# forgotten more meanwhile, with all of them, which leaves nothing to ask for.
HISTORY_ATTEMPTS = 3

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Origin:
    """Of the rows: what they are compared by with what a scorer was trained for."""

    model_fingerprint: str
    boundary_rule: str


async def score_rows(
    stub: ScorerServiceAsyncStub,
    scorer: ScorerInfo,
    origin: Origin,
    batch: Sequence[Queued],
    timeout: float,
    on_call: Callable[[Sequence[Queued]], None],
) -> bool:
    """Settles the entries of a batch, none of which is settled; False: it wants histories that it was given.

    on_call: gets the entries of each call before it, in the order of the call. Raises grpc.RpcError; what was
    answered until then is settled.
    """
    rows = [entry.row for entry in batch]
    runs = request_order(rows, history=scorer.history_size > 0)
    for _ in range(HISTORY_ATTEMPTS):
        unknown: list[Run] = []
        for part in parts(runs, lambda run: run_bytes(rows, run)):
            sent = _entries(batch, part)
            on_call(sent)
            size = scorer.history_size
            request = encode_request(rows, part, origin.model_fingerprint, origin.boundary_rule, size)
            answer = await stub.Score(request, timeout=timeout)
            unknown += _take_scores(batch, part, answer, size)
        if not unknown:
            return True
        runs = unknown
    return False


async def score_texts(
    stub: ScorerServiceAsyncStub,
    batch: Sequence[Queued],
    timeout: float,
    on_call: Callable[[Sequence[Queued]], None],
) -> bool:
    """The same for a scorer that reads texts, which wants no history."""
    rows = [entry.row for entry in batch]
    runs = request_order(rows)
    traces = zip(runs, encode_texts(rows, runs), strict=True)
    for part in parts(traces, lambda pair: text_bytes(pair[1])):
        sent = _entries(batch, [run for run, _ in part])
        on_call(sent)
        answer = await stub.ScoreText(
            pb.ScoreTextRequest(traces=[trace for _, trace in part]), timeout=timeout
        )
        for entry, score in zip(sent, decode_scores(answer.scores, len(sent)), strict=True):
            _settle(entry, score, b"", answer.mismatch, unscorable="STEP_TOO_LONG")
    return True


def parts(items: Iterable[_T], size: Callable[[_T], int]) -> Iterator[list[_T]]:
    """The items, in order, as many in a part as CALL_BYTES hold; one that is larger has a part of its own."""
    part: list[_T] = []
    left = CALL_BYTES
    for item in items:
        taken = size(item)
        if part and taken > left:
            yield part
            part, left = [], CALL_BYTES
        part.append(item)
        left -= taken
    if part:
        yield part


def _take_scores(
    batch: Sequence[Queued], part: Sequence[Run], answer: pb.ScoreResponse, history_size: int
) -> list[Run]:
    """Settles what was answered; returns the runs that are to be sent again, with their history."""
    count = sum(len(run.rows) for run in part)
    scores = decode_scores(answer.scores, count)
    projected = decode_projected(answer.projected, count, history_size)
    wanted = {need.trace: need.from_thought for need in answer.need_history} if history_size else {}
    again: list[Run] = []
    place = 0
    for number, run in enumerate(part):
        trace = batch[run.rows[0]].row.trace
        if trace is not None and wanted.get(number, run.first) < run.first:
            run.history = b"".join(trace.history(0 if run.history else wanted[number]))
            again.append(run)
            place += len(run.rows)
            continue
        for index in run.rows:
            kept = None if projected is None else projected[place]
            _settle(batch[index], scores[place], kept, answer.mismatch, unscorable="NONFINITE_ROW")
            place += 1
    return again


def _settle(
    entry: Queued, score: float | None, projected: bytes | None, mismatch: str, *, unscorable: str
) -> None:
    if score is None or projected is None:
        entry.error = "BAD_SCORES"
    elif math.isnan(score):
        entry.error = unscorable
    else:
        entry.score, entry.projected, entry.mismatch = score, projected, mismatch


def _entries(batch: Sequence[Queued], runs: Iterable[Run]) -> list[Queued]:
    return [batch[index] for run in runs for index in run.rows]
