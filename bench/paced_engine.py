"""An engine whose outputs are made up and cost next to nothing, read by the tap that reads vLLM's.

What is left is what Thoughtbeam does with the outputs. Every trace gets a token a step and passes a boundary
every so many tokens, each at another moment.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from bench.clock import Clock
from decoder_worker.engine.base import EngineInfo, SamplingSpec, StepBatch, Tokenizer
from decoder_worker.engine.boundaries import BLANK_LINE, BOUNDARY, Vocabulary, last_code
from decoder_worker.engine.checks import check_request
from decoder_worker.engine.fingerprint import model_fingerprint
from decoder_worker.engine.tokenizer import HuggingFaceTokenizer
from decoder_worker.engine.vllm_tap import HANDOVER, RunningTrace, Tap
from thoughtbeam.models import BUNDLED_MODEL

MADE_UP = "engine: outputs made up"
TAP = "tap: vLLM's outputs read"
CALLS = "engine calls: add and abort"

_BLOCK = 32
_ROWS = 256  # different ones, so that scores differ


@dataclass(frozen=True, slots=True)
class Language:
    """The bundled model's tokenizer, and tokens to make traces of: a boundary, and ordinary ones."""

    tokenizer: Tokenizer
    vocabulary: Vocabulary
    boundary: int
    ordinary: tuple[int, ...]

    @classmethod
    def load(cls) -> Language:
        tokenizer = HuggingFaceTokenizer.load(str(BUNDLED_MODEL))
        size = json.loads((BUNDLED_MODEL / "config.json").read_text())["vocab_size"]
        texts = tokenizer.token_texts(size)
        boundary = next(token for token, text in enumerate(texts) if text == "\n\n")
        special = tokenizer.transparent
        ordinary = tuple(t for t, text in enumerate(texts) if text and "\n" not in text and t not in special)
        vocabulary = Vocabulary(BLANK_LINE, texts, special)
        return cls(tokenizer, vocabulary, boundary, ordinary)


@dataclass(slots=True, eq=False)
class _Output:
    """The fields of vLLM's EngineCoreOutput that the tap reads."""

    request_id: str
    new_token_ids: list[int]
    kv_transfer_params: dict[str, Any] | None
    finish_reason: int | None = None
    prefill_stats: Any = None


@dataclass(slots=True, eq=False)
class _MadeUp:
    """A trace that "runs". due: whether its next output carries a row. moment: of its boundaries."""

    request: str
    length: int
    moment: int
    due: bool = False
    begun: bool = False


class _Processor:
    """The part of vLLM's output processor that the tap touches."""

    def __init__(self) -> None:
        self.request_states: dict[str, Any] = {}

    def process_outputs(self, outputs: Iterable[Any]) -> Any:
        return SimpleNamespace(reqs_to_abort=[])

    def abort_requests(self, requests: Iterable[str], internal: bool) -> list[str]:
        return list(requests)


class PacedEngine:
    """The `Engine`. gap: tokens between two boundaries of a trace. kv_use: what it says of its KV cache.
    clock: gets its parts. `run` gives steps, so many seconds apart."""

    def __init__(
        self, language: Language, slots: int, gap: int, *, kv_use: float = 0.5, clock: Clock | None = None
    ) -> None:
        config = json.loads((BUNDLED_MODEL / "config.json").read_text())
        self.tokenizer = language.tokenizer
        self.info = EngineInfo(
            model="made up",
            fingerprint=model_fingerprint(BUNDLED_MODEL),
            version="made up",
            boundary_rule=BLANK_LINE,
            hidden_size=config["hidden_size"],
            max_context=1 << 17,
            slots=slots,
            block_size=_BLOCK,
            kv_blocks=slots * (1 << 17) // _BLOCK,
            default_sampling=SamplingSpec(max_tokens=1 << 16),
        )
        self.step_number = 0
        self._language = language
        self._gap = gap
        self._kv_use = kv_use
        self._clock = clock
        self._processor = _Processor()
        self._tap = Tap(self._processor, self._ended)
        self._running: dict[str, tuple[RunningTrace, _MadeUp]] = {}
        self._random = random.Random(0)
        self._rows = [self._made_up_row() for _ in range(_ROWS)]
        self._adds = 0
        self._left = 0
        self._pace = 0.0
        self._burst = 1
        self._ending = 0
        self._changed = asyncio.Event()
        self._done = asyncio.Event()

    # ---- the seam

    async def add(
        self,
        trace_id: str,
        token_ids: Sequence[int],
        sampling: SamplingSpec,
        *,
        stop_at_boundary: bool = False,
    ) -> None:
        """What VllmEngine does, but for vLLM's own part."""
        check_request(self.info, self._running, trace_id, token_ids, sampling)
        self._adds += 1
        vocabulary = self._language.vocabulary
        trace = RunningTrace(
            trace_id=trace_id,
            request=f"{trace_id}#{self._adds}",
            start=len(token_ids),
            first_row=bool(last_code(vocabulary.table, token_ids) & BOUNDARY),
            span=vocabulary.span(token_ids),
            stop_at_boundary=stop_at_boundary,
        )
        self._tap.expect(trace)
        self._tap.bind(trace.request, trace.request)
        made_up = _MadeUp(trace.request, len(token_ids), self._random.randrange(self._gap), due=True)
        self._running[trace_id] = (trace, made_up)
        self._changed.set()

    async def abort(self, trace_id: str) -> None:
        trace, _ = self._running.pop(trace_id, (None, None))
        if trace is not None:
            self._tap.drop(trace)

    async def set_priorities(self, priorities: Mapping[str, int]) -> None:
        """The look-up of VllmEngine; the call itself is not made."""
        known = {t: p for t, p in priorities.items() if t in self._running}
        assert len(known) <= len(priorities)

    async def steps(self) -> AsyncIterator[StepBatch]:
        next_at = 0.0
        while True:
            if not self._left or not self._running:
                self._done.set()
                self._changed.clear()
                await self._changed.wait()
                next_at = time.monotonic()
                continue
            next_at += self._pace
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
            with self._part(MADE_UP):
                outputs = self._outputs()
            with self._part(TAP):
                self._processor.process_outputs(outputs)
                batch = self._tap.take()
            assert batch is not None
            self._left -= 1
            yield batch

    async def close(self) -> None:
        self._running.clear()

    # ---- what a benchmark does

    async def run(self, steps: int, pace: float, *, burst: int = 1) -> None:
        """Gives so many steps, `pace` seconds apart, and returns when nothing is left of them.

        burst: tokens of a trace in a step; above 1 the last of them is a boundary.
        """
        self._left, self._pace, self._burst = steps, pace, burst
        self._done.clear()
        self._changed.set()
        await self._done.wait()

    def end(self, traces: int) -> None:
        """So many traces, the oldest, end with the next step."""
        self._ending += traces

    @property
    def running(self) -> int:
        """Traces that it has."""
        return len(self._running)

    def _part(self, name: str) -> Any:
        return nullcontext() if self._clock is None else self._clock.part(name)

    def _outputs(self) -> list[_Output]:
        self.step_number += 1
        handed: dict[str, Any] = {"step": self.step_number, "kv_use": self._kv_use}
        outputs = []
        filler = self._language.ordinary
        step = self.step_number
        for _, made_up in self._running.values():
            if made_up.due:
                handed["row"] = (made_up.length - 1, "float32", self._random.choice(self._rows))
            if self._burst > 1:
                tokens = [filler[(step + i) % len(filler)] for i in range(self._burst - 1)]
                tokens.append(self._language.boundary)
                made_up.due = True
            else:
                made_up.due = (step + made_up.moment) % self._gap == 0
                tokens = [self._language.boundary if made_up.due else filler[step % len(filler)]]
            made_up.length += len(tokens)
            output = _Output(made_up.request, tokens, {HANDOVER: handed} if handed else None)
            if not made_up.begun:
                made_up.begun = True
                output.prefill_stats = SimpleNamespace(num_cached_tokens=made_up.length - len(tokens))
            if self._ending:
                self._ending -= 1
                output.finish_reason = 0
            outputs.append(output)
            handed = {}
        return outputs

    def _made_up_row(self) -> bytes:
        size = self.info.hidden_size
        return struct.pack(f"<{size}f", *(self._random.gauss(0.0, 1.0) for _ in range(size)))

    def _ended(self, trace: RunningTrace) -> None:
        self._running.pop(trace.trace_id, None)
