"""What every engine refuses before it tries."""

from __future__ import annotations

from collections.abc import Container, Sequence

from decoder_worker.engine.base import EngineError, EngineInfo, SamplingSpec


def check_request(
    info: EngineInfo,
    running: Container[str],
    trace_id: str,
    token_ids: Sequence[int],
    sampling: SamplingSpec,
) -> None:
    """Raises EngineError, naming what is allowed, for a trace that `info`'s engine cannot add."""
    if trace_id in running:
        raise EngineError(f"trace {trace_id} is running already")
    limit = info.max_context - 1
    if not 1 <= len(token_ids) <= limit:
        raise EngineError(
            f"trace {trace_id} has {len(token_ids)} tokens, must have 1 to {limit} "
            f"to be decoded in a context of {info.max_context}"
        )
    if sampling.max_tokens < 1:
        raise EngineError(f"max_tokens is {sampling.max_tokens}, must be at least 1")


def check_capacity(info: EngineInfo) -> None:
    """Raises EngineError when the KV cache cannot hold one trace of the longest kind: it would wait for
    ever."""
    capacity = info.kv_blocks * info.block_size
    if capacity < info.max_context:
        raise EngineError(
            f"{info.kv_blocks} KV blocks of {info.block_size} tokens cannot hold one trace of max_context "
            f"{info.max_context}: at most {capacity} is allowed",
            fatal=True,
        )
