from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from decoder_worker.engine.vllm_engine import VllmEngine
from tests.integration.conftest import MODEL
from tests.integration.engine.recorder import Recorder
from tests.integration.engine.reference import Reference

QUESTION = (
    "Start with 633 and work modulo 1000. a) -878 b) +875 c) +442 d) +479 e) -470. Report the value after e."
)


@pytest.fixture(scope="session")
def reference() -> Reference:
    return Reference(MODEL)


@pytest.fixture
async def recorder(vllm_engine: VllmEngine) -> AsyncIterator[Recorder]:
    async with Recorder(vllm_engine) as recorder:
        yield recorder


@pytest.fixture(scope="session")
def prompt(vllm_engine: VllmEngine) -> list[int]:
    return vllm_engine.tokenizer.encode_chat([{"role": "user", "content": QUESTION}])
