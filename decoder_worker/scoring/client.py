"""Sends boundary rows to the prm worker and hands back scores, batched across searches.

One call is in flight; whatever gathers meanwhile goes into the next one. Decoding never waits for a score.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from decoder_worker.scoring.info import (
    NOT_ANSWERED,
    ScorerInfo,
    ScorerMismatchError,
    ScorerUnreachableError,
    ask,
)
from decoder_worker.scoring.wire import (
    BoundaryRow,
    decode_scores,
    encode_request,
    is_finite,
    request_order,
)
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import StatusError, from_rpc_error
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub

__all__ = [
    "BoundaryRow",
    "Deliver",
    "ScoredRow",
    "ScorerInfo",
    "ScorerMismatchError",
    "ScorerUnreachableError",
    "ScoringClient",
    "ScoringStats",
]

log = EventLogger("decoder_worker.scoring.client")

MAX_ROWS_PER_CALL = 256  # less where the server takes less
CALL_TIMEOUT = 10.0  # seconds; a server that hangs is asked again
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """The outcome for one row. score: in [0, 1]; None when it was refused or lost, then `error` says why
    (`NONFINITE_ROW`, `SCORER_LOST`, `BAD_SCORES`, or the reason the server gave)."""

    row: BoundaryRow
    score: float | None
    error: str = ""


@dataclass(slots=True)
class ScoringStats:
    """Counters since the start. rows: scored; seconds: spent in calls that were answered; retries: calls that
    were not; lost: rows given up as SCORER_LOST."""

    calls: int = 0
    rows: int = 0
    seconds: float = 0.0
    retries: int = 0
    lost: int = 0


Deliver: TypeAlias = Callable[[Sequence[ScoredRow]], None]


@dataclass(slots=True, eq=False)
class _Queued:
    row: BoundaryRow
    deliver: Deliver
    since: float  # loop time
    score: float | None = None
    error: str = ""
    forgotten: bool = False

    @property
    def format(self) -> tuple[str, int]:
        """Rows of one call agree in this."""
        return self.row.row.dtype, len(self.row.row.data)


class ScoringClient:
    """The decoder worker's side of one prm worker. To be made inside a running event loop.

    target: `host:port`. model_fingerprint, boundary_rule, hidden_size: of the engine whose rows it sends (the
    last for `info` to compare). deadline: seconds that a row waits for a prm worker that does not answer.
    """

    def __init__(
        self,
        target: str,
        model_fingerprint: str,
        boundary_rule: str,
        deadline: float,
        *,
        hidden_size: int | None = None,
    ) -> None:
        self.stats = ScoringStats()
        self._target = target
        self._model_fingerprint = model_fingerprint
        self._boundary_rule = boundary_rule
        self._deadline = deadline
        self._hidden_size = hidden_size
        self._max_rows = MAX_ROWS_PER_CALL
        self._channel = open_channel(target)
        self._stub = ScorerServiceStub(self._channel)
        self._queue: deque[_Queued] = deque()  # oldest first
        self._in_hand: Sequence[_Queued] = ()  # taken from the queue: sent, or being delivered
        self._arrived = asyncio.Event()
        self._pause = 0.0  # between attempts; 0: the last call was answered
        self._next_attempt = 0.0  # loop time

    async def close(self) -> None:
        """Closes the connection. `run` must have ended."""
        await self._channel.close()

    async def info(self, *, timeout: float | None = None) -> ScorerInfo:
        """Asks what the prm worker serves, waiting for it up to `timeout` seconds, by default the deadline.

        Raises ScorerMismatchError when its scorer does not fit this engine, ScorerUnreachableError when
        nobody answers, and StatusError for any other answer.
        """
        info = await ask(self._stub, self._target, timeout or self._deadline)
        different = info.differences(self._model_fingerprint, self._boundary_rule, self._hidden_size)
        if different:
            raise ScorerMismatchError(
                f"the scorer at {self._target} was trained for another engine: {'; '.join(different)}"
            )
        self._max_rows = min(MAX_ROWS_PER_CALL, info.max_rows)
        return info

    def submit(self, rows: Sequence[BoundaryRow], deliver: Deliver) -> None:
        """Queues rows. `deliver` gets each of them back exactly once, unless its tree is forgotten, the rows
        of one trace in the order of their submission. It is called from `run` and must not raise.

        A row that is not finite never leaves. Raises ValueError for a dtype that the wire does not have, or
        data that is not a whole number of values.
        """
        now = asyncio.get_running_loop().time()
        self._queue.extend(
            [_Queued(row, deliver, now, error="" if is_finite(row.row) else "NONFINITE_ROW") for row in rows]
        )
        if rows:
            self._arrived.set()

    def forget(self, tree_id: str) -> None:
        """Drops the rows of a tree that has ended: nothing of it is delivered afterwards."""
        self._queue = deque(entry for entry in self._queue if entry.row.tree_id != tree_id)
        for entry in self._in_hand:
            entry.forgotten = entry.forgotten or entry.row.tree_id == tree_id

    async def run(self) -> None:
        """Scores what is submitted until it is cancelled."""
        while True:
            await self._arrived.wait()
            if self._pause:
                pause = self._next_attempt - asyncio.get_running_loop().time()
                await asyncio.sleep(min(pause, self._patience()))
            self._deliver(self._take_old())
            await self._score(self._take())
            self._in_hand = ()
            if not self._queue:
                self._arrived.clear()

    async def _score(self, batch: Sequence[_Queued]) -> None:
        self._in_hand = batch
        if await self._settle(batch):
            self._deliver(batch)
        else:
            self._queue.extendleft(entry for entry in reversed(batch) if not entry.forgotten)

    # ---- the queue

    def _patience(self) -> float:
        """Seconds until the oldest row is lost."""
        if not self._queue:
            return 0.0
        age = asyncio.get_running_loop().time() - self._queue[0].since
        return max(0.0, self._deadline - age)

    def _take_old(self) -> Sequence[_Queued]:
        """The rows that have waited too long."""
        old: list[_Queued] = []
        while self._queue and not self._patience():
            entry = self._queue.popleft()
            entry.error = entry.error or "SCORER_LOST"
            old.append(entry)
        lost = sum(entry.error == "SCORER_LOST" for entry in old)
        if lost:
            self.stats.lost += lost
            log.warning("rows_lost", target=self._target, rows=lost)
        return old

    def _take(self) -> Sequence[_Queued]:
        """The oldest rows that fit into one call."""
        taken: list[_Queued] = []
        wanted: tuple[str, int] | None = None
        while self._queue and len(taken) < self._max_rows:
            entry = self._queue[0]
            if not entry.error:
                wanted = wanted or entry.format
                if entry.format != wanted:
                    break
            taken.append(self._queue.popleft())
        return taken

    def _deliver(self, entries: Sequence[_Queued]) -> None:
        self._in_hand = entries
        by_receiver: dict[Deliver, list[_Queued]] = {}
        for entry in entries:
            by_receiver.setdefault(entry.deliver, []).append(entry)
        for deliver, own in by_receiver.items():
            # the receiver before may have forgotten this one's tree
            scored = [ScoredRow(e.row, e.score, e.error) for e in own if not e.forgotten]
            if scored:
                deliver(scored)

    # ---- one call

    async def _settle(self, batch: Sequence[_Queued]) -> bool:
        """One call. True when every row of the batch has a score or an error, False: ask again."""
        open_entries = [entry for entry in batch if not entry.error]
        if not open_entries:
            return True
        rows = [entry.row for entry in open_entries]
        runs = request_order(rows)
        sent = [open_entries[index] for run in runs for index in run]
        request = encode_request(rows, runs, self._model_fingerprint, self._boundary_rule)
        loop = asyncio.get_running_loop()
        started = loop.time()
        left = max(0.01, open_entries[0].since + self._deadline - started)
        try:
            answer = await self._stub.Score(request, timeout=min(CALL_TIMEOUT, left))
        except grpc.RpcError as error:
            return self._settle_failure(sent, from_rpc_error(error))
        self._answered()
        self.stats.calls += 1
        self.stats.rows += len(sent)
        self.stats.seconds += loop.time() - started
        for entry, score in zip(sent, decode_scores(answer.scores, len(sent)), strict=True):
            entry.score = score
            entry.error = "" if score is not None else "BAD_SCORES"
        return True

    def _settle_failure(self, sent: Sequence[_Queued], status: StatusError) -> bool:
        """What a failed call means for its rows, given in the order of the request. False: ask again."""
        if status.code in NOT_ANSWERED:
            if not self._pause:
                log.warning("scorer_unreachable", target=self._target, code=status.code.name)
            self._pause = min(LONGEST_PAUSE, 2 * self._pause or FIRST_PAUSE)
            self._next_attempt = asyncio.get_running_loop().time() + self._pause
            self.stats.retries += 1
            return False
        self._answered()
        row = status.metadata.get("row", "")
        if status.reason == "NONFINITE_ROW" and row.isdecimal() and int(row) < len(sent):
            # a finite row that overflows in the scorer: the others of its call are none the worse
            sent[int(row)].error = status.reason
            return False
        reason = status.code.name if status.reason == "UNKNOWN" else status.reason
        log.error("rows_refused", target=self._target, rows=len(sent), reason=reason, message=status.message)
        for entry in sent:
            entry.error = reason
        return True

    def _answered(self) -> None:
        if self._pause:
            log.info("scorer_back", target=self._target)
        self._pause = 0.0
