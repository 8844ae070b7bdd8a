"""Dynamic batching: what has gathered while one forward pass ran is the next one, whoever sent it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from prm_worker.scorers.base import Float32Array, HistoryScorer, Scored, Scorer, TracePart


class BatcherClosedError(Exception):
    """The batcher has stopped scoring; another one may do it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    rows: Float32Array
    parts: Sequence[TracePart]
    scored: asyncio.Future[Scored]


@dataclass(frozen=True, slots=True)
class _Drop:
    tree_id: str
    nodes: Sequence[int]


class Batcher:
    """Scores the rows of concurrent calls together: one forward pass at a time, in one thread of its own, so
    that the event loop stays free.

    max_rows: bound on the rows of one pass and of one call. passes: forward passes so far.
    """

    def __init__(self, scorer: Scorer, max_rows: int) -> None:
        self.max_rows = max_rows
        self.passes = 0
        self._scorer = scorer
        self._waiting: deque[_Call | _Drop] = deque()
        self._in_pass: list[_Call] = []
        self._closed = False
        self._arrived = asyncio.Event()

    async def score(self, rows: Float32Array, parts: Sequence[TracePart] = ()) -> Scored:
        """Scores of one call's rows, float32 [rows, hidden size]. parts: the traces that they belong to, in
        their order; only a scorer that keeps histories asks for them. Needs `run` to run.

        Raises what the scorer raised; the next call is not affected. Raises BatcherClosedError.
        """
        if self._closed:
            raise BatcherClosedError
        if not 1 <= len(rows) <= self.max_rows:
            raise ValueError(f"{len(rows)} rows in one call; there must be 1 to {self.max_rows}")
        call = _Call(rows, parts, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._arrived.set()
        return await call.scored

    def drop(self, tree_id: str, nodes: Sequence[int]) -> None:
        """Has the scorer forget traces (none named: all of the tree), after the calls that came before."""
        if isinstance(self._scorer, HistoryScorer) and not self._closed:
            self._waiting.append(_Drop(tree_id, nodes))
            self._arrived.set()

    def close(self) -> None:
        """Ends the calls that wait or are being scored, and refuses further ones."""
        self._closed = True
        for call in self._open():
            if not call.scored.done():
                call.scored.set_exception(BatcherClosedError())

    async def run(self) -> None:
        """Scores until it is cancelled; calls that still wait are cancelled with it."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="scorer")
        try:
            while True:
                await self._arrived.wait()
                drops = self._take_drops()
                self._in_pass = self._take()
                if self._in_pass or drops:
                    await self._pass(executor, drops, self._in_pass)
        finally:
            for call in self._open():
                call.scored.cancel()
            # a pass under way is waited for; the event loop has others to serve meanwhile
            await asyncio.to_thread(executor.shutdown)

    def _open(self) -> Sequence[_Call]:
        return [*self._in_pass, *(call for call in self._waiting if isinstance(call, _Call))]

    def _take_drops(self) -> list[_Drop]:
        """The drops that come before the next call."""
        taken: list[_Drop] = []
        while self._waiting and isinstance(drop := self._waiting[0], _Drop):
            taken.append(drop)
            self._waiting.popleft()
        return taken

    def _take(self) -> list[_Call]:
        """The calls that wait before the next drop, oldest first, as many whole ones as one pass holds."""
        taken: list[_Call] = []
        rows = 0
        while self._waiting and isinstance(call := self._waiting[0], _Call):
            if rows + len(call.rows) > self.max_rows:
                break
            self._waiting.popleft()
            if not call.scored.done():  # its caller has not gone
                taken.append(call)
                rows += len(call.rows)
        if not self._waiting:
            self._arrived.clear()
        return taken

    async def _pass(self, executor: ThreadPoolExecutor, drops: Sequence[_Drop], calls: list[_Call]) -> None:
        loop = asyncio.get_running_loop()
        self.passes += bool(calls)
        try:
            scored = await loop.run_in_executor(executor, self._forward, drops, calls)
        except Exception as error:
            for call in calls:
                if not call.scored.done():
                    call.scored.set_exception(error)
            return
        for call, own in zip(calls, scored, strict=True):
            if not call.scored.done():
                call.scored.set_result(own)

    def _forward(self, drops: Sequence[_Drop], calls: Sequence[_Call]) -> Sequence[Scored]:
        scorer = self._scorer
        if isinstance(scorer, HistoryScorer):
            for drop in drops:
                scorer.drop(drop.tree_id, drop.nodes)
        if not calls:
            return ()
        rows = np.concatenate([call.rows for call in calls])
        if isinstance(scorer, HistoryScorer):
            return _split(scorer.score_parts(rows, [part for call in calls for part in call.parts]), calls)
        return _split(Scored(scorer.score(rows)), calls)


def _split(scored: Scored, calls: Sequence[_Call]) -> Sequence[Scored]:
    """What became of each call's rows."""
    found: list[Scored] = []
    row = part = 0
    for call in calls:
        rows = slice(row, row + len(call.rows))
        projected = None if scored.projected is None else scored.projected[rows]
        need = {
            index - part: wanted
            for index, wanted in scored.need_history.items()
            if part <= index < part + len(call.parts)
        }
        found.append(Scored(scored.scores[rows], projected, need))
        row, part = rows.stop, part + len(call.parts)
    return found
