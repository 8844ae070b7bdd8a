"""A process of its own for one test: an engine with asynchronous scheduling, checked, then killed.

Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from typing import Any

from decoder_worker.engine import vllm_launch
from decoder_worker.engine.base import EngineError, SamplingSpec
from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
from tests.integration.conftest import MODEL
from tests.integration.engine.conftest import QUESTION
from tests.integration.engine.recorder import Recorder
from tests.integration.engine.reference import Reference


def make_asynchronous() -> None:
    real = vllm_launch._vllm_config

    def asynchronous(arguments: dict[str, Any]) -> Any:
        from decoder_worker.engine.vllm_scheduler import HandoverAsyncScheduler

        config = real(arguments)
        config.scheduler_config.async_scheduling = True
        config.scheduler_config.scheduler_cls = HandoverAsyncScheduler
        config.parallel_config.worker_extension_cls = "tests.integration.engine.fake_async.FakeAsyncExtension"
        return config

    vllm_launch._vllm_config = asynchronous


async def check_rows(engine: VllmEngine) -> dict[str, Any]:
    """Roots in a KV cache that is too small for them, branches, and an abort."""
    prompt = engine.tokenizer.encode_chat([{"role": "user", "content": QUESTION}])
    reference = Reference(MODEL)
    async with Recorder(engine) as recorder:
        traces = [
            await recorder.add(f"t{n}", [*prompt[:2], 70 + n, *prompt[2:]], max_tokens=300, confidence=n < 8)
            for n in range(16)
        ]
        await recorder.until(lambda: all(len(trace.rows) >= 2 for trace in traces[:4]))
        for trace in traces[:4]:
            start = trace.tokens[: trace.rows[-1].position + 1]
            traces.append(await recorder.add(f"{trace.trace_id}.1", start, max_tokens=120, confidence=True))
        await engine.abort("t5")
        traces[5] = await recorder.add("t5", traces[5].tokens, max_tokens=100)
        held = await recorder.add("held", prompt, stop_at_boundary=True)
        await recorder.finished(held, *traces)
        rows = sum(reference.check(trace) for trace in traces)
        sure = [reference.check_confidences(trace) for trace in (*traces[:5], *traces[6:8], *traces[16:])]
    return {
        "rows": rows,
        "confidences": len(sure),
        "held": [held.finish, reference.boundaries(held.tokens[held.start :]) == {len(held.new) - 1}],
        "preemptions": len(await engine.preemptions()),
        "asynchronous": (await engine._llm.collective_rpc("late_outputs_seen"))[0],
    }


async def check_death(engine: VllmEngine) -> dict[str, Any]:
    """Kills the engine core and sees how callers learn of it."""
    await engine.add("last", [5, 6, 7], SamplingSpec(max_tokens=900))
    (core,) = multiprocessing.active_children()
    core.kill()
    began = time.monotonic()
    heard = []
    for wait in (_read_all(engine), engine.set_priorities({"last": 1}), _add(engine)):
        try:
            async with asyncio.timeout(20):
                await wait
        except EngineError as error:
            heard.append([str(error), error.fatal])
    return {"heard": heard, "seconds": time.monotonic() - began}


async def _read_all(engine: VllmEngine) -> None:
    async for _ in engine.steps():
        pass


async def _add(engine: VllmEngine) -> None:
    await engine.add("another", [5, 6, 7], SamplingSpec(max_tokens=5))


async def main() -> None:
    make_asynchronous()
    config = VllmConfig(str(MODEL), dtype="float32", slots=32, max_context=1024, kv_blocks=65, block_size=32)
    engine = await VllmEngine.start(config)
    try:
        print(json.dumps(await check_rows(engine) | await check_death(engine)))
    finally:
        await engine.close()


if __name__ == "__main__":
    asyncio.run(main())
