"""The real engine: vLLM's AsyncLLM, read at one place.

Requests are added with `output_kind=FINAL_ONLY` and without detokenisation, and nobody awaits their
outputs: the tap on `output_processor.process_outputs` is the only reader of tokens, rows and KV use. So
there is no task, no queue and no copy per trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decoder_worker.engine.base import EngineError, EngineInfo, SamplingSpec, StepBatch
from decoder_worker.engine.boundaries import BOUNDARY, last_code
from decoder_worker.engine.checks import check_request
from decoder_worker.engine.tokenizer import HuggingFaceTokenizer
from decoder_worker.engine.vllm_config import VllmConfig
from decoder_worker.engine.vllm_hooks import ASKS
from decoder_worker.engine.vllm_launch import Launched, launch
from decoder_worker.engine.vllm_tap import RunningTrace, Tap

__all__ = ["Preemption", "VllmConfig", "VllmEngine"]


@dataclass(frozen=True, slots=True)
class Preemption:
    """A trace that vLLM preempted for memory: its priority, and those of the traces that went on."""

    trace_id: str
    priority: int
    others: Sequence[int]


class VllmEngine:
    """The `Engine` on vLLM; made by `start`."""

    info: EngineInfo
    tokenizer: HuggingFaceTokenizer

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self.info = launched.info
        self.tokenizer = launched.tokenizer
        self._vocabulary = launched.vocabulary
        self._llm = launched.llm
        self._running: dict[str, RunningTrace] = {}
        self._tap = Tap(self._llm.output_processor, self._ended)
        self._adds = 0
        self._closing = False
        self._dead = False

    @classmethod
    async def start(cls, config: VllmConfig) -> VllmEngine:
        """Loads the model; the event loop goes on meanwhile. A cancelled start leaves no process behind.

        Raises a fatal EngineError when the model, a setting or vLLM's release cannot be served.
        """
        engine = cls(await launch(config))
        try:
            # vLLM's own task for outputs ends when its engine core does, and for no other reason.
            engine._llm._run_output_handler()
            engine._llm.output_handler.add_done_callback(engine._died)
            await engine.set_capture(True)
        except BaseException:
            await engine.close()
            raise
        return engine

    # ---- the seam

    async def add(
        self,
        trace_id: str,
        token_ids: Sequence[int],
        sampling: SamplingSpec,
        *,
        stop_at_boundary: bool = False,
    ) -> None:
        """See `Engine.add`. When this returns vLLM has checked the request and taken it.

        Where the last of token_ids is a boundary, its row comes with the first output; it does not stop the
        trace.
        """
        self._check_alive()
        check_request(self.info, self._running, trace_id, token_ids, sampling)
        self._adds += 1
        trace = RunningTrace(
            trace_id=trace_id,
            request=f"{trace_id}#{self._adds}",
            start=len(token_ids),
            first_row=bool(last_code(self._vocabulary.table, token_ids) & BOUNDARY),
            span=self._vocabulary.span(token_ids),
            stop_at_boundary=stop_at_boundary,
        )
        self._running[trace_id] = trace
        self._tap.expect(trace)
        try:
            internal = await self._add_request(trace.request, token_ids, sampling)
        except BaseException as error:
            await self.abort(trace_id)
            if not isinstance(error, Exception):
                raise
            self._check_alive()
            raise EngineError(f"vLLM refused trace {trace_id}: {error}") from error
        self._tap.bind(trace.request, internal)

    async def abort(self, trace_id: str) -> None:
        trace = self._running.pop(trace_id, None)
        if trace is None:
            return
        self._tap.drop(trace)
        if not (self._closing or self._dead):
            await self._llm.abort(trace.request)

    async def set_priorities(self, priorities: Mapping[str, int]) -> None:
        """See `Engine.set_priorities`; ids of traces that are not running are ignored."""
        known = {
            self._running[trace_id].internal: priority
            for trace_id, priority in priorities.items()
            if trace_id in self._running
        }
        await self._control("set_priorities", known)

    async def steps(self) -> AsyncIterator[StepBatch]:
        while True:
            while (batch := self._tap.take()) is not None:
                yield batch
            if self._closing:
                return
            self._check_alive()
            self._tap.arrived.clear()
            await self._tap.arrived.wait()

    async def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._tap.arrived.set()
        if (handler := self._llm.output_handler) is not None:
            handler.cancel()
            await asyncio.gather(handler, return_exceptions=True)
        await asyncio.to_thread(self._launched.shut_down)

    # ---- for tests and benchmarks

    async def set_capture(self, on: bool) -> None:
        """Switches the capture of rows. Raises EngineError while a trace runs."""
        if self._running:
            raise EngineError(f"capture cannot be switched while {len(self._running)} traces run")
        table = [[token, *codes] for token, codes in self._vocabulary.table.items()] if on else None
        await self._llm.collective_rpc("thoughtbeam_capture", args=(table,))

    async def block_ids(self) -> dict[str, list[int]]:
        """Physical KV blocks of each running trace, in the order of its tokens."""
        blocks = await self._control("block_ids", None)
        return {
            trace.trace_id: ids
            for internal, ids in blocks.items()
            if (trace := self._tap.trace_of(internal)) is not None
        }

    async def preemptions(self) -> list[Preemption]:
        """What vLLM has preempted so far (the last 10,000), in order."""
        return [
            Preemption(internal.rsplit("#", 1)[0], priority, others)
            for internal, priority, others in await self._control("preemptions", None)
        ]

    # ---- inside

    async def _add_request(self, request: str, token_ids: Sequence[int], sampling: SamplingSpec) -> str:
        """Returns vLLM's own id of the request."""
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        # No seed of its own: on CPU one kills the engine in a prefill of several pieces, and the traces of a
        # request must differ anyway.
        parameters = SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args={ASKS: True} if sampling.confidence else None,
        )
        collector = await self._llm.add_request(request, tokens_input(list(token_ids)), parameters)
        internal: str = collector.request_id
        return internal

    async def _control(self, method: str, argument: Any) -> Any:
        """Calls the scheduler in the engine core, between two steps."""
        from decoder_worker.engine.vllm_scheduler import CONTROL

        self._check_alive()
        return await self._llm.engine_core.call_utility_async(CONTROL, method, argument)

    def _ended(self, trace: RunningTrace) -> None:
        if self._running.get(trace.trace_id) is trace:
            del self._running[trace.trace_id]

    def _died(self, _: asyncio.Task[None]) -> None:
        self._dead = True
        self._tap.arrived.set()
        # vLLM would leave these callers waiting
        for waiting in self._llm.engine_core.utility_results.values():
            if not waiting.done():
                waiting.set_exception(self._death())

    def _death(self) -> EngineError:
        error = EngineError("the engine is closed" if self._closing else "the engine has died", fatal=True)
        error.__cause__ = self._tap.failure
        return error

    def _check_alive(self) -> None:
        if self._closing or self._dead:
            raise self._death()
