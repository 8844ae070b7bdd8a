"""One real engine for all integration tests: starting one takes a quarter of a minute."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine

MODEL = Path(__file__).parents[2] / "thoughtbeam" / "models" / "tiny_reasoner"


@pytest.fixture(scope="session")
async def vllm_engine() -> AsyncIterator[VllmEngine]:
    """vLLM on the CPU with the bundled model in float32, and so little KV that long traces preempt each
    other.

    Its steps have one consumer at a time: a test that reads them leaves no trace running.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM's and torch's own, at import and start
        engine = await VllmEngine.start(
            VllmConfig(
                model=str(MODEL),
                served_name="tiny_reasoner",
                dtype="float32",
                slots=32,
                max_context=1024,
                kv_blocks=129,
                block_size=32,
            )
        )
    yield engine
    await engine.close()
