"""An engine without a model: deterministic, in virtual time, with slots, a KV budget and preemption.

Policies, pressure and failures are tried on it to the last transition, and fleets can be simulated with it.
It does in a step what vLLM does: every resident trace gets one token, for want of KV the least important
trace is preempted, and waiting traces come in while there is room.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from decoder_worker.engine.base import (
    EngineError,
    EngineInfo,
    FinishReason,
    HiddenRow,
    SamplingSpec,
    StepBatch,
    TraceOutput,
)
from decoder_worker.engine.boundaries import BLANK_LINE, BOUNDARY, TAIL, code_after, last_code, make_table
from decoder_worker.engine.checks import check_capacity, check_request
from decoder_worker.engine.scripted_kv import Residence, SharedKv
from decoder_worker.engine.scripted_traces import (
    END,
    ScriptedTokenizer,
    TraceSource,
    drawn_confidence,
    score_of,
    text_tokens,
)

_NEWLINE = text_tokens("\n")[0]
_TABLE = make_table(["", "\n\n"], transparent=()) | {_NEWLINE: make_table(["\n"])[0]}


@dataclass(frozen=True, slots=True)
class StepTime:
    """How long a step takes, in seconds: a base, and more for every trace decoded and every token
    prefilled."""

    base: float = 0.005
    per_trace: float = 0.00002
    per_prefilled: float = 0.00002

    def __call__(self, traces: int, prefilled: int) -> float:
        return self.base + traces * self.per_trace + prefilled * self.per_prefilled


@dataclass(frozen=True, slots=True)
class ScriptedConfig:
    """A scripted engine. kv_blocks: of block_size tokens each. turns: how often the event loop turns
    between two steps, which is what a step's time is to the rest of the program. confidence: of a token, from
    its trace, its position and the score of its thought; one that looks it up replays."""

    slots: int = 32
    kv_blocks: int = 1024
    block_size: int = 16
    max_context: int = 4096
    hidden_size: int = 4
    step_time: StepTime = StepTime()
    turns: int = 5
    confidence: Callable[[str, int, float], float] = drawn_confidence


@dataclass(slots=True, eq=False)
class _Trace:
    trace_id: str
    arrival: int
    tokens: list[int]
    script: Iterator[int]
    limit: int  # length at which it is cut
    stop_at_boundary: bool
    confidence: bool
    start: int
    code: int  # of its last token, see boundaries.py
    score: float
    priority: int = 0
    residence: Residence | None = None
    begun: bool = False

    @property
    def rank(self) -> tuple[int, int]:
        """Larger ranks are preempted first and admitted last."""
        return (self.priority, self.arrival)


class ScriptedEngine:
    """The `Engine` that plays a trace source. now: virtual time in seconds. preempted: trace ids, in order.

    `steps` computes a step whenever its consumer asks for one, or with `pace` only when it may.
    """

    def __init__(self, source: TraceSource, config: ScriptedConfig | None = None) -> None:
        self.config = config = config or ScriptedConfig()
        self.tokenizer = ScriptedTokenizer()
        self.info = EngineInfo(
            model="scripted",
            fingerprint="scripted",
            version="scripted",
            boundary_rule=BLANK_LINE,
            hidden_size=config.hidden_size,
            max_context=config.max_context,
            slots=config.slots,
            block_size=config.block_size,
            kv_blocks=config.kv_blocks,
            default_sampling=SamplingSpec(max_tokens=config.max_context - 1),
        )
        check_capacity(self.info)
        self.now = 0.0
        self.step_number = 0
        self.preempted: list[str] = []
        self._source = source
        self._kv = SharedKv(config.kv_blocks, config.block_size)
        self._traces: dict[str, _Trace] = {}
        self._arrivals = 0
        self._permits: int | None = None
        self._changed = asyncio.Event()
        self._error: EngineError | None = None
        self._closed = False

    # ---- the seam

    async def add(
        self,
        trace_id: str,
        token_ids: Sequence[int],
        sampling: SamplingSpec,
        *,
        stop_at_boundary: bool = False,
    ) -> None:
        self._check_alive()
        check_request(self.info, self._traces, trace_id, token_ids, sampling)
        scores = (score for token in reversed(token_ids) if (score := score_of(token)) is not None)
        self._arrivals += 1
        self._traces[trace_id] = _Trace(
            trace_id=trace_id,
            arrival=self._arrivals,
            tokens=list(token_ids),
            script=self._source.continuation(trace_id, token_ids),
            limit=min(len(token_ids) + sampling.max_tokens, self.config.max_context),
            stop_at_boundary=stop_at_boundary,
            confidence=sampling.confidence,
            start=len(token_ids),
            code=last_code(_TABLE, token_ids),
            score=next(scores, 0.5),
        )
        self._changed.set()

    async def abort(self, trace_id: str) -> None:
        if trace_id in self._traces:
            self._leave(self._traces[trace_id])

    async def set_priorities(self, priorities: Mapping[str, int]) -> None:
        self._check_alive()
        for trace_id, priority in priorities.items():
            if trace_id in self._traces:
                self._traces[trace_id].priority = priority

    async def steps(self) -> AsyncIterator[StepBatch]:
        while not self._closed:
            self._check_alive()
            if self._permits == 0 or not self._traces:
                self._changed.clear()
                await self._changed.wait()
                continue
            if self._permits is not None:
                self._permits -= 1
            yield self.step()
            for _ in range(self.config.turns):
                await asyncio.sleep(0)

    async def close(self) -> None:
        self._closed = True
        self._traces.clear()
        self._changed.set()

    # ---- what a test or a simulation does

    def pace(self, steps: int | None) -> None:
        """Lets `steps` give so many more steps from now on; None: as many as are asked for."""
        self._permits = steps
        self._changed.set()

    def die(self, reason: str = "the engine has died") -> None:
        """From now on every call fails, as when a real engine's process is gone."""
        self._error = EngineError(reason, fatal=True)
        self._changed.set()

    @property
    def kv_use(self) -> float:
        return self._kv.used / self._kv.total

    def resident(self) -> list[str]:
        """Traces that hold KV, in order of arrival."""
        return [trace.trace_id for trace in self._traces.values() if trace.residence is not None]

    def step(self) -> StepBatch:
        """Computes one step; an empty one when nothing can run."""
        preemptions = len(self.preempted)
        decoding = sorted(self._resident(), key=lambda trace: trace.rank)
        decoded = [self._decode(trace) for trace in decoding]
        prefilled, admitted = 0, []
        if len(self.preempted) == preemptions:
            for trace in self._admitted():
                assert trace.residence is not None
                prefilled += len(trace.tokens) - trace.residence.cached
                admitted.append(self._decode(trace))
        outputs = [output for output in (*decoded, *admitted) if output is not None]
        self.step_number += 1
        self.now += self.config.step_time(len(outputs), prefilled)
        return StepBatch(self.step_number, self.kv_use, outputs)

    # ---- inside a step

    def _admitted(self) -> Iterator[_Trace]:
        """Waiting traces that find room, each with its KV."""
        waiting = [trace for trace in self._traces.values() if trace.residence is None]
        for trace in sorted(waiting, key=lambda trace: trace.rank):
            if len(self._resident()) >= self.config.slots:
                return
            trace.residence = self._kv.admit(trace.tokens)
            if trace.residence is None:
                return
            yield trace

    def _decode(self, trace: _Trace) -> TraceOutput | None:
        """One token for a trace; None when it was preempted, for itself or for one before it."""
        if trace.residence is None:
            return None
        cached = None if trace.begun else trace.residence.cached
        row = self._row(trace) if trace.code & BOUNDARY else None
        if row is not None and trace.stop_at_boundary and row.position >= trace.start:
            self._leave(trace)
            return TraceOutput(trace.trace_id, (), row, FinishReason.BOUNDARY, cached)
        token = next(trace.script)
        while not self._kv.grow(trace.residence, token):
            victim = max(self._resident(), key=lambda other: other.rank)
            self._preempt(victim)
            if victim is trace:
                trace.script = _put_back(token, trace.script)
                return None
        trace.begun = True
        trace.tokens.append(token)
        trace.code = code_after(_TABLE, trace.code & TAIL, token)
        if (score := score_of(token)) is not None:
            trace.score = score
        finish = None
        if token == END:
            finish = FinishReason.STOP
        elif len(trace.tokens) >= trace.limit:
            finish = FinishReason.LENGTH
        if finish is not None:
            self._leave(trace)
        sure: tuple[float, ...] = ()
        if trace.confidence:
            sure = (self.config.confidence(trace.trace_id, len(trace.tokens) - 1, trace.score),)
        return TraceOutput(trace.trace_id, (token,), row, finish, cached, sure)

    def _row(self, trace: _Trace) -> HiddenRow:
        position = len(trace.tokens) - 1
        values = [trace.score, *[0.0] * (self.config.hidden_size - 1)]
        return HiddenRow(position, struct.pack(f"<{len(values)}f", *values), "float32")

    def _resident(self) -> list[_Trace]:
        return [trace for trace in self._traces.values() if trace.residence is not None]

    def _preempt(self, trace: _Trace) -> None:
        assert trace.residence is not None
        self._kv.release(trace.residence)
        trace.residence = None
        self.preempted.append(trace.trace_id)

    def _leave(self, trace: _Trace) -> None:
        del self._traces[trace.trace_id]
        if trace.residence is not None:
            self._kv.release(trace.residence)
            trace.residence = None

    def _check_alive(self) -> None:
        if self._closed:
            raise EngineError("the engine is closed", fatal=True)
        if self._error is not None:
            raise self._error


def _put_back(token: int, script: Iterator[int]) -> Iterator[int]:
    yield token
    yield from script
