"""A worker ends when it is told to, whatever has become of the gateway, the store and the prm worker."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import AsyncExitStack
from random import Random

import pytest

from decoder_worker import tree_run, worker
from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.scoring.client import ScoringClient
from gateway.config import GatewayConfig
from prm_worker.scorer_file import Metadata
from prm_worker.scorers.mlp import MlpScorer
from tests.integration.decoder_worker.door import Door
from tests.integration.decoder_worker.harness import RecordingEngine, drawn, queue, working
from tests.integration.gateway.harness import PATIENCE, running_gateway
from tests.integration.prm_worker.serving import served
from tests.unit.prm_worker.weights import step_weights
from tree_store.store import TreeStore

MOMENTS, AT_ONCE = 30, 5
HIDDEN = 4
FITTING = Metadata("mlp", HIDDEN, "scripted", "blank_line")
TREES = (("gambit", {"C": 8, "K": 2, "interval": 8, "warmup": 40, "N_max": 8}), ("best_of_n", {"N": 4}))


async def moment(seed: int, redis_url: str, gateway: str, scorer: str) -> None:
    """One worker with work, from which everything is taken while it stops."""
    random = Random(seed)
    engine = RecordingEngine(drawn(seed), ScriptedConfig(slots=12, hidden_size=HIDDEN))
    store = TreeStore.connect(redis_url)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        doors = [
            await stack.enter_async_context(Door(target).serving())
            for target in (redis_url, f"tcp://{gateway}", f"tcp://{scorer}")
        ]
        ways = [f"127.0.0.1:{door.port}" for door in doors]
        scoring = ScoringClient(ways[2], "scripted", "blank_line", 30.0, hidden_size=HIDDEN)
        stack.push_async_callback(scoring.close)
        bench = await stack.enter_async_context(
            working(
                redis_url,
                engine,
                name=f"worker {seed}",
                lease=1.0,
                drain=random.choice([0.0, 0.2, 86_400.0]),
                gateway=ways[1],
                scoring=scoring,
                own_store=TreeStore.connect(doors[0].url),
            )
        )
        trees = [await queue(store, policy, parameters=parameters) for policy, parameters in TREES]
        await asyncio.sleep(random.uniform(0, 0.4))
        happenings = [bench.stop.set, *(random.choice([d.shut, d.shut, d.freeze]) for d in doors)]
        random.shuffle(happenings)
        for happening in happenings:
            happening()
            await asyncio.sleep(random.choice([0, 0, 0.001, 0.02]))
        for tree_id in trees:
            await store.request_cancel(tree_id)  # what it did not hand back is of no use to the others
        # leaving the block it is told to hurry


async def ends(seed: int, redis_url: str, gateway: str, scorer: str) -> None:
    task = asyncio.create_task(moment(seed, redis_url, gateway, scorer))
    await asyncio.wait([task], timeout=PATIENCE)
    if not task.done():
        stack = "\n".join(
            "".join(traceback.format_list(traceback.extract_stack(frame)[-1:]))
            for waiting in asyncio.all_tasks()
            for frame in waiting.get_stack()
        )
        pytest.fail(f"moment {seed}: the worker has not ended\n{stack}")
    await task


@pytest.mark.no_asyncio_debug
async def test_a_worker_ends_though_everything_around_it_is_gone(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_run, "HAND_BACK_SECONDS", 0.3)
    monkeypatch.setattr(tree_run, "LATE_SCORES_SECONDS", 0.1)
    monkeypatch.setattr(worker, "FAREWELL_SECONDS", 0.1)
    config = GatewayConfig(redis_url=redis_url, reap_interval=0.1, lease=1.0, grace=1.0)
    async with (
        running_gateway(config) as gateway,
        served(FITTING, scorer=MlpScorer(step_weights(HIDDEN))) as prm,
    ):
        address = f"127.0.0.1:{gateway.port}"
        for first in range(0, MOMENTS, AT_ONCE):
            seeds = range(first, min(first + AT_ONCE, MOMENTS))
            await asyncio.gather(*(ends(seed, redis_url, address, prm.target) for seed in seeds))
