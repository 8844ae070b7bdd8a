"""A worker that waits for its next step holds nothing of the last one."""

from __future__ import annotations

import gc

from decoder_worker.engine.base import StepBatch, TraceOutput
from decoder_worker.engine.scripted import ScriptedConfig
from tests.integration.decoder_worker.harness import RecordingEngine, drawn, working
from tests.integration.gateway.harness import eventually


def held() -> list[str]:
    gc.collect()
    # not by isinstance, which proxies answer for what they stand for
    return [repr(found) for found in gc.get_objects() if type(found) in (StepBatch, TraceOutput)]


async def test_a_worker_that_waits_holds_nothing_of_the_last_step(redis_url: str) -> None:
    before = len(held())
    engine = RecordingEngine(drawn(1), ScriptedConfig(slots=8))
    async with working(redis_url, engine) as bench:
        await bench.solve("best_of_n", parameters={"N": 4})

        async def nothing_held() -> bool:
            return len(held()) <= before

        await eventually(nothing_held)
