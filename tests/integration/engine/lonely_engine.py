"""A process of its own for one test: starts an engine, says so and sleeps until it is killed."""

from __future__ import annotations

import asyncio

from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
from thoughtbeam.runtime.parent_watch import die_with_starter


async def main() -> None:
    from tests.integration.conftest import MODEL

    await VllmEngine.start(VllmConfig(str(MODEL), slots=2, max_context=256, kv_blocks=9))
    print("up", flush=True)
    await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main())
elif __name__ == "__mp_main__":
    die_with_starter()  # as decoder_worker/__main__.py has it
