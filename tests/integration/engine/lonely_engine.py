"""A process of its own for one test: starts an engine, says so and sleeps until it is killed."""

from __future__ import annotations

import asyncio

from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
from tests.integration.conftest import MODEL


async def main() -> None:
    await VllmEngine.start(VllmConfig(str(MODEL), slots=2, max_context=256, kv_blocks=9))
    print("up", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
