"""What every engine refuses before it tries."""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from pathlib import Path

from decoder_worker.engine.base import EngineError, EngineInfo, SamplingSpec


def check_model(model: str) -> None:
    """Raises EngineError for a directory that holds no model, and for a path that is no directory.

    What could be a name on the Hugging Face hub is left to the hub.
    """
    if os.path.isdir(model):
        if not Path(model, "config.json").is_file():
            raise EngineError(
                f"model {model} has no config.json: it is no directory in Hugging Face format", fatal=True
            )
    elif model.startswith(("/", ".", "~")) or model.count("/") > 1 or os.path.exists(model):
        raise EngineError(f"model {model}: there is no such directory", fatal=True)


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
