"""The engine seam: what a search needs of an inference engine, and nothing else of it.

`VllmEngine` is the real one, `ScriptedEngine` replays or draws traces. All token positions here are absolute,
the prompt included, counted from 0.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


class EngineError(RuntimeError):
    """The engine refused a call or has died; `fatal` tells which."""

    def __init__(self, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.fatal = fatal


class FinishReason(enum.StrEnum):
    STOP = "stop"  # an end token
    LENGTH = "length"  # max_tokens or the context was reached
    BOUNDARY = "boundary"  # stop_at_boundary: the boundary's row was captured


@dataclass(frozen=True, slots=True)
class SamplingSpec:
    """How one trace is sampled. max_tokens: new tokens from this add on, at least 1. confidence: whether the
    engine is to say with each token how sure the model was, see `TraceOutput.confidences`."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0: off
    max_tokens: int = 4096
    confidence: bool = False


@dataclass(frozen=True, slots=True)
class HiddenRow:
    """Post-final-norm hidden state of one boundary token.

    position: index of the boundary token in the whole sequence, prompt included.
    data: raw little-endian values, [hidden size]. dtype: `float32`, `float16` or `bfloat16`.
    """

    position: int
    data: bytes
    dtype: str


# One is made per token, and a frozen one would take four times as long to make.
@dataclass(slots=True)
class TraceOutput:
    """What one step gave one trace; nobody changes it.

    tokens: new tokens, in order; the end token is included. row: the hidden row of the boundary passed
    last, which arrives with the step after the boundary token; where the last token of an add is a
    boundary, its row comes with the first output, and the caller knows whether it had it already.
    cached_tokens: on the first output after an add, the prompt tokens whose KV was in the cache (the rest
    was computed). confidences: one per token, where they were asked for: minus the mean log-probability of
    the 20 most probable tokens in its place, by the logits as the model gives them, before temperature and
    all else that sampling does to them; 0 where that is no number.
    """

    trace_id: str
    tokens: Sequence[int] = ()
    row: HiddenRow | None = None
    finish: FinishReason | None = None
    cached_tokens: int | None = None
    confidences: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Everything one engine step gave. step: counts from 1. kv_use: share of KV blocks in use, in [0, 1]."""

    step: int
    kv_use: float
    outputs: Sequence[TraceOutput] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine serves. kv_blocks × block_size: KV capacity in tokens."""

    model: str
    fingerprint: str
    version: str
    boundary_rule: str
    hidden_size: int
    max_context: int
    slots: int
    block_size: int
    kv_blocks: int
    default_sampling: SamplingSpec


class Tokenizer(Protocol):
    """Text to tokens and back."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Token ids of a conversation (`role`, `content`) with the generation prompt at its end."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of generated tokens, special tokens left out."""
        ...


class Engine(Protocol):
    """One inference engine. Calls come from one event loop."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    async def add(
        self,
        trace_id: str,
        token_ids: Sequence[int],
        sampling: SamplingSpec,
        *,
        stop_at_boundary: bool = False,
    ) -> None:
        """Starts decoding after token_ids (prompt and tokens so far). A prefix that a running trace shares
        is not computed again. Raises EngineError when it cannot be run (too long, duplicate id)."""
        ...

    async def abort(self, trace_id: str) -> None:
        """Stops a trace and frees its KV; nothing of it is delivered afterwards. Unknown ids are ignored."""
        ...

    async def set_priorities(self, priorities: Mapping[str, int]) -> None:
        """Order in which the engine preempts when its KV runs out: larger numbers first."""
        ...

    def steps(self) -> AsyncIterator[StepBatch]:
        """The one stream of step batches, for one consumer. Raises a fatal EngineError when it dies."""
        ...

    async def close(self) -> None:
        """Stops the engine and its processes."""
        ...
