"""Makes vLLM's asynchronous output path run on the CPU: imported by workers of one test only.

vLLM switches asynchronous scheduling off there for want of CUDA streams and events; on a CPU, where
everything has happened when a call returns, these can be empty.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from decoder_worker.engine import vllm_hooks


class _Nothing:
    """A stream or an event."""

    device = torch.device("cpu")

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, *args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def query(self) -> bool:
        return True


cuda: Any = torch.cuda
cuda.Event = cuda.Stream = _Nothing
cuda.current_stream = _Nothing
cuda.stream = lambda stream: contextlib.nullcontext()


class FakeAsyncExtension(vllm_hooks.CaptureExtension):
    def late_outputs_seen(self) -> bool:
        """Whether the path was really taken."""
        return vllm_hooks._late_output_class.cache_info().currsize == 1
