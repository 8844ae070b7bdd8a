"""Runs single traces on an engine and keeps what they wrote: the one consumer of the engine's steps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from decoder_worker.answers.confidence import of_thought
from decoder_worker.engine.base import Engine, EngineError, HiddenRow, SamplingSpec, TraceOutput

TYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(slots=True, eq=False)
class Written:
    """A trace. prompt: tokens of the prompt. start: tokens that it was added with. tokens: the whole
    sequence. rows: of the boundaries that it has passed itself. confidences: one per token of its own."""

    prompt: int
    start: int
    tokens: list[int]
    finish: str = ""
    rows: list[HiddenRow] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)

    @property
    def generated(self) -> list[int]:
        """Tokens after the prompt, inherited ones included."""
        return self.tokens[self.prompt :]

    def thought_confidences(self) -> list[float]:
        """Mean confidence of the tokens of each of its own thoughts; NaN where none is known."""
        means = []
        begin = 0
        for row in self.rows:
            end = row.position + 1 - self.start
            means.append(of_thought(self.confidences[begin:end]) or math.nan)
            begin = end
        return means

    def take(self, output: TraceOutput) -> None:
        """One output of the engine."""
        self.tokens.extend(output.tokens)
        self.confidences.extend(output.confidences)
        # the row of the boundary that a branch starts from is its parent's
        if output.row is not None and output.row.position >= self.start:
            self.rows.append(output.row)
        if output.finish is not None:
            self.finish = output.finish.value


class Tracing:
    """Decodes at most as many traces at once as the engine has slots; the others wait in order.

    `follow` has to run meanwhile. decoded: tokens so far.
    """

    def __init__(self, engine: Engine) -> None:
        self.decoded = 0
        self._engine = engine
        self._slots = asyncio.Semaphore(engine.info.slots)
        self._running: dict[str, tuple[Written, asyncio.Future[None]]] = {}

    async def run(self, trace_id: str, prompt: int, tokens: Sequence[int], sampling: SamplingSpec) -> Written:
        """A trace that goes on after these tokens, to its end.

        prompt: how many of them are the prompt. Raises EngineError when the engine refuses it or dies.
        """
        written = Written(prompt=prompt, start=len(tokens), tokens=list(tokens))
        async with self._slots:
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._running[trace_id] = written, ended
            try:
                await self._engine.add(trace_id, tokens, sampling)
                await ended
            finally:
                del self._running[trace_id]
                if not written.finish:
                    await self._engine.abort(trace_id)
        return written

    async def follow(self) -> None:
        """Reads the engine's steps until it is cancelled. Raises EngineError when the engine dies; then the
        traces that run fail as well."""
        try:
            async for batch in self._engine.steps():
                for output in batch.outputs:
                    self._take(output)
            raise EngineError("the engine is closed", fatal=True)
        except EngineError as error:
            for _, ended in self._running.values():
                if not ended.done():
                    ended.set_exception(error)
            raise

    def _take(self, output: TraceOutput) -> None:
        if (found := self._running.get(output.trace_id)) is None:
            return
        written, ended = found
        written.take(output)
        self.decoded += len(output.tokens)
        if written.finish and not ended.done():
            ended.set_result(None)
