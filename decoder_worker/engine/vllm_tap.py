"""The one reader of what vLLM gives: turns the outputs of a step into a step batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decoder_worker.engine.base import EngineError, FinishReason, HiddenRow, StepBatch, TraceOutput
from decoder_worker.engine.boundaries import ThoughtSpan

# Key of our hand-over in an output's kv_transfer_params: {"step", "kv_use"} on the first output of a step,
# {"row"} where a row was captured, {"confidence"} of the new token where it was asked for. That field is the
# one that vLLM carries through unread while no KV connector is configured.
HANDOVER = "thoughtbeam"

# vLLM's finish reasons by number; the others (abort, error, repetition) happen only when something is broken.
_FINISH = {0: FinishReason.STOP, 1: FinishReason.LENGTH}


@dataclass(slots=True, eq=False)
class RunningTrace:
    """A trace that vLLM has.

    request: the id we gave it, new with every add. start: tokens it was added with. first_row: whether the
    last of them is a boundary. span: where its boundaries count. dropped: nothing of it is delivered any
    more.
    """

    trace_id: str
    request: str
    start: int
    first_row: bool
    span: ThoughtSpan
    stop_at_boundary: bool
    internal: str = ""
    begun: bool = False
    dropped: bool = False

    def read(self, output: Any, row: HiddenRow | None, confidences: Sequence[float] = ()) -> TraceOutput:
        """What one output of vLLM means for this trace. row: as captured, wanted or not."""
        tokens = output.new_token_ids
        if row is None and output.finish_reason is None and self.begun:  # nearly all of them
            self.span.feed(tokens)
            return TraceOutput(self.trace_id, tokens, confidences=confidences)
        if row is not None and not (self.span.open and (row.position >= self.start or self.first_row)):
            row = None
        cached = None
        if not self.begun:
            self.begun = True
            cached = 0 if output.prefill_stats is None else output.prefill_stats.num_cached_tokens
        if self.stop_at_boundary and row is not None and row.position >= self.start:
            # What was sampled after the boundary is surplus, an end token too.
            return TraceOutput(self.trace_id, (), row, FinishReason.BOUNDARY, cached)
        finish = None
        if output.finish_reason is not None:
            finish = _FINISH.get(int(output.finish_reason))
            if finish is None:
                raise EngineError(f"vLLM ended trace {self.trace_id}: {output.finish_reason}", fatal=True)
        self.span.feed(tokens)
        return TraceOutput(self.trace_id, tokens, row, finish, cached, confidences)


@dataclass(slots=True)
class _Batch:
    step: int
    kv_use: float
    outputs: list[tuple[RunningTrace, TraceOutput]]


class Tap:
    """Wraps `process_outputs` of vLLM's output processor and keeps the batches until they are taken.

    on_end: called with each trace that has ended by itself. arrived: set whenever there is something to take.
    """

    def __init__(self, output_processor: Any, on_end: Callable[[RunningTrace], None]) -> None:
        self.arrived = asyncio.Event()
        self.failure: Exception | None = None
        self._on_end = on_end
        self._processor = output_processor
        self._process_outputs: Callable[..., Any] = output_processor.process_outputs
        output_processor.process_outputs = self._on_process_outputs
        self._by_request: dict[str, RunningTrace] = {}
        self._by_internal: dict[str, RunningTrace] = {}
        self._batches: deque[_Batch] = deque()
        self._step, self._kv_use = 0, 0.0

    def expect(self, trace: RunningTrace) -> None:
        """Its outputs may come from now on."""
        self._by_request[trace.request] = trace

    def drop(self, trace: RunningTrace) -> None:
        """Nothing of it is delivered any more, not even what has arrived."""
        trace.dropped = True
        self._forget(trace)

    def take(self) -> StepBatch | None:
        """The next batch, if there is one."""
        if not self._batches:
            return None
        batch = self._batches.popleft()
        outputs = [output for trace, output in batch.outputs if not trace.dropped]
        return StepBatch(batch.step, batch.kv_use, outputs)

    def bind(self, request: str, internal: str) -> RunningTrace | None:
        """Notes vLLM's own id of a request; None when the trace has ended or was dropped."""
        trace = self._by_request.get(request)
        if trace is not None:
            trace.internal = internal
            self._by_internal[internal] = trace
        return trace

    def trace_of(self, internal: str) -> RunningTrace | None:
        """The trace behind one of vLLM's own ids; None when it has ended or was dropped."""
        trace = self._by_internal.get(internal)
        if trace is None and (state := self._processor.request_states.get(internal)) is not None:
            # its first output was quicker than the call that added it
            trace = self.bind(state.external_req_id, internal)
        return trace

    def _on_process_outputs(self, outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        try:
            stopped = self._read(outputs)
        except Exception as error:
            self.failure = error
            raise
        processed = self._process_outputs(outputs, *args, **kwargs)
        if stopped:
            processed.reqs_to_abort.extend(self._processor.abort_requests(stopped, internal=True))
        return processed

    def _read(self, outputs: Sequence[Any]) -> list[str]:
        """Notes a batch; returns the requests that are to be stopped at their boundary."""
        stopped: list[str] = []
        read: list[tuple[RunningTrace, TraceOutput]] = []
        by_internal = self._by_internal
        for output in outputs:
            row = None
            confidences: Sequence[float] = ()
            if output.kv_transfer_params:
                handed = _handed(output)
                if "step" in handed:
                    self._step, self._kv_use = handed["step"], handed["kv_use"]
                row = _row(handed)
                if "confidence" in handed:
                    confidences = (handed["confidence"],)
            trace = by_internal.get(output.request_id) or self.trace_of(output.request_id)
            if trace is None:
                continue
            found = trace.read(output, row, confidences)
            read.append((trace, found))
            if found.finish is not None:
                self._forget(trace)
                self._on_end(trace)
            if found.finish is FinishReason.BOUNDARY:
                stopped.append(output.request_id)
        self._batches.append(_Batch(self._step, self._kv_use, read))
        self.arrived.set()
        return stopped

    def _forget(self, trace: RunningTrace) -> None:
        self._by_request.pop(trace.request, None)
        self._by_internal.pop(trace.internal, None)


def _handed(output: Any) -> Mapping[str, Any]:
    parameters = output.kv_transfer_params
    if HANDOVER not in parameters:
        return {}
    output.kv_transfer_params = None
    handed: Mapping[str, Any] = parameters[HANDOVER]
    return handed


def _row(handed: Mapping[str, Any]) -> HiddenRow | None:
    if "row" not in handed:
        return None
    position, dtype, data = handed["row"]
    return HiddenRow(position, bytes(data), dtype)
