"""Dynamic batching: what has gathered while one forward pass ran is the next one, whoever sent it."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from prm_worker.scorers.base import Float32Array, Scorer


class BatcherClosedError(Exception):
    """The batcher has stopped scoring; another one may do it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    rows: Float32Array
    scores: asyncio.Future[Float32Array]


class Batcher:
    """Scores the rows of concurrent calls together: one forward pass at a time, in one thread of its own, so
    that the event loop stays free.

    max_rows: bound on the rows of one pass and of one call. passes: forward passes so far.
    """

    def __init__(self, scorer: Scorer, max_rows: int) -> None:
        self.max_rows = max_rows
        self.passes = 0
        self._scorer = scorer
        self._waiting: deque[_Call] = deque()
        self._in_pass: list[_Call] = []
        self._closed = False
        self._arrived = asyncio.Event()

    async def score(self, rows: Float32Array) -> Float32Array:
        """Scores of one call's rows, float32 [rows, hidden size] to [rows]. Needs `run` to run.

        Raises what the scorer raised; the next call is not affected. Raises BatcherClosedError.
        """
        if self._closed:
            raise BatcherClosedError
        if not 1 <= len(rows) <= self.max_rows:
            raise ValueError(f"{len(rows)} rows in one call; there must be 1 to {self.max_rows}")
        call = _Call(rows, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        self._arrived.set()
        return await call.scores

    def close(self) -> None:
        """Ends the calls that wait or are being scored, and refuses further ones."""
        self._closed = True
        for call in (*self._in_pass, *self._waiting):
            if not call.scores.done():
                call.scores.set_exception(BatcherClosedError())

    async def run(self) -> None:
        """Scores until it is cancelled; calls that still wait are cancelled with it."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="scorer")
        try:
            while True:
                await self._arrived.wait()
                self._in_pass = self._take()
                if self._in_pass:
                    await self._pass(executor, self._in_pass)
        finally:
            for call in (*self._in_pass, *self._waiting):
                call.scores.cancel()
            # a pass under way is waited for; the event loop has others to serve meanwhile
            await asyncio.to_thread(executor.shutdown)

    def _take(self) -> list[_Call]:
        """The calls that wait, oldest first, as many whole ones as one pass holds."""
        taken: list[_Call] = []
        rows = 0
        while self._waiting and rows + len(self._waiting[0].rows) <= self.max_rows:
            call = self._waiting.popleft()
            if not call.scores.done():  # its caller has not gone
                taken.append(call)
                rows += len(call.rows)
        if not self._waiting:
            self._arrived.clear()
        return taken

    async def _pass(self, executor: ThreadPoolExecutor, calls: list[_Call]) -> None:
        loop = asyncio.get_running_loop()
        self.passes += 1
        try:
            scores = await loop.run_in_executor(executor, self._forward, [call.rows for call in calls])
        except Exception as error:
            for call in calls:
                if not call.scores.done():
                    call.scores.set_exception(error)
            return
        for call, own in zip(calls, scores, strict=True):
            if not call.scores.done():
                call.scores.set_result(own)

    def _forward(self, parts: list[Float32Array]) -> list[Float32Array]:
        scores = self._scorer.score(np.concatenate(parts))
        return np.split(scores, np.cumsum([len(rows) for rows in parts])[:-1])
