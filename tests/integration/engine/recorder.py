"""Reads an engine's steps and keeps what each trace gave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from decoder_worker.engine.base import Engine, FinishReason, HiddenRow, SamplingSpec, StepBatch

Floats = NDArray[np.float32]


@dataclass
class Recorded:
    """One add. tokens: the whole sequence, start: how many of them were given. confidences: of the others."""

    trace_id: str
    start: int
    tokens: list[int]
    rows: list[HiddenRow] = field(default_factory=list)
    finish: FinishReason | None = None
    cached: int | None = None
    confidences: list[float] = field(default_factory=list)

    @property
    def new(self) -> list[int]:
        return self.tokens[self.start :]

    def row_at(self, position: int) -> Floats:
        (row,) = [row for row in self.rows if row.position == position]
        assert row.dtype == "float32"
        return np.frombuffer(row.data, dtype=np.float32)


class Recorder:
    """The one consumer of an engine's steps, as a context manager."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.running: dict[str, Recorded] = {}
        self.steps: list[StepBatch] = []
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        for trace_id in list(self.running):
            await self.engine.abort(trace_id)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def add(
        self,
        trace_id: str,
        tokens: Sequence[int],
        max_tokens: int = 900,
        *,
        stop_at_boundary: bool = False,
        confidence: bool = False,
    ) -> Recorded:
        trace = self.running[trace_id] = Recorded(trace_id, len(tokens), list(tokens))
        sampling = SamplingSpec(max_tokens=max_tokens, confidence=confidence)
        await self.engine.add(trace_id, tokens, sampling, stop_at_boundary=stop_at_boundary)
        return trace

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for a condition on what was recorded."""
        async with asyncio.timeout(240), self._changed:
            await self._changed.wait_for(lambda: self._task.done() or condition())
        if self._task.done():
            self._task.result()

    async def finished(self, *traces: Recorded) -> None:
        await self.until(lambda: all(trace.finish for trace in traces))

    async def _read(self) -> None:
        try:
            async for batch in self.engine.steps():
                self.steps.append(batch)
                for output in batch.outputs:
                    trace = self.running[output.trace_id]
                    assert trace.finish is None, "nothing comes after the end"
                    assert (output.cached_tokens is not None) == (trace.cached is None)
                    if trace.cached is None:
                        trace.cached = output.cached_tokens
                    trace.tokens.extend(output.tokens)
                    trace.confidences.extend(output.confidences)
                    if output.row is not None:
                        trace.rows.append(output.row)
                    trace.finish = output.finish
                    if trace.finish is not None:
                        del self.running[output.trace_id]
                async with self._changed:
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._changed.notify_all()
