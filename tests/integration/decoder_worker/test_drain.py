"""A worker that is to stop, behind a real gateway: its trees end, no new ones come, the rest goes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from decoder_worker.engine.base import EngineError
from decoder_worker.engine.scripted import ScriptedConfig
from gateway.config import GatewayConfig
from tests.integration.decoder_worker.harness import Bench, RecordingEngine, drawn, ended, working
from tests.integration.gateway.harness import (
    PATIENCE,
    Gateway,
    eventually,
    is_state,
    read,
    read_until,
    request,
    running_gateway,
)
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import TreeState

DAY = 86_400.0


@pytest.fixture
async def gateway(redis_url: str) -> AsyncIterator[Gateway]:
    config = GatewayConfig(redis_url=redis_url, reap_interval=0.1, lease=3600.0, grace=30.0)
    async with running_gateway(config) as running:
        yield running


def paused() -> RecordingEngine:
    engine = RecordingEngine(drawn(2), ScriptedConfig(slots=8))
    engine.pace(0)
    return engine


def small(**fields: object) -> pb.ReasonRequest:
    return request(policy="self_consistency", parameters={"N": 2}, **fields)


async def state_of(gateway: Gateway, worker: str) -> str:
    fields = await gateway.store._redis.hgetall(f"tb:worker:{worker}")
    return str(fields.get(b"state", b"").decode())


def accepts(bench: Bench) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return bench.worker.accepts_request

    return there


def both_added(engine: RecordingEngine) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        return len(engine.added) == 2

    return there


async def becomes(gateway: Gateway, worker: str, state: str) -> None:
    async def there() -> bool:
        return await state_of(gateway, worker) == state

    await eventually(there)


async def test_a_worker_that_drains_ends_its_tree_and_gets_no_new_one(
    redis_url: str, gateway: Gateway
) -> None:
    engine, address = paused(), f"127.0.0.1:{gateway.port}"
    async with working(redis_url, engine, name="old", drain=DAY, gateway=address) as old:
        await becomes(gateway, "old", "serving")
        first = gateway.reason(small())
        await read_until(first, is_state(pb.TREE_STATE_RUNNING))
        # its slots are free for another, and the gateway has the credit for it
        await eventually(accepts(old))
        old.stop.set()
        await becomes(gateway, "old", "draining")
        assert not old.worker.accepts_request
        second = gateway.reason(small())
        await read_until(second, is_state(pb.TREE_STATE_QUEUED))
        new = RecordingEngine(drawn(2), ScriptedConfig(slots=8))
        async with working(redis_url, new, name="new", gateway=address):
            answer = await read(second)
            assert answer.result is not None
            tree = await gateway.get(answer.result.name.removeprefix("trees/"))
            assert (tree.worker, tree.epoch) == ("new", 1)
            # the old one still runs its own
            assert not old.running.done()
            engine.pace(None)
            answer = await read(first)
            assert answer.result is not None
            tree = await gateway.get(answer.result.name.removeprefix("trees/"))
            assert (tree.state, tree.worker, tree.epoch) == (pb.TREE_STATE_SUCCEEDED, "old", 1)
        # and then it has stopped by itself, and is not listed until its lease ends
        await asyncio.wait_for(old.running, PATIENCE)
        workers = await gateway.stub.ListWorkers(pb.ListWorkersRequest())
        assert not workers.workers
        assert await state_of(gateway, "old") == ""


async def test_a_cancel_reaches_a_worker_that_drains(redis_url: str, gateway: Gateway) -> None:
    address = f"127.0.0.1:{gateway.port}"
    async with working(redis_url, paused(), drain=DAY, gateway=address) as bench:
        call = gateway.reason(small())
        event = await read_until(call, is_state(pb.TREE_STATE_RUNNING))
        bench.stop.set()
        await becomes(gateway, "first", "draining")
        cancelled = await gateway.stub.CancelTree(pb.CancelTreeRequest(name=event.tree.name))
        assert cancelled.tree.state == pb.TREE_STATE_CANCELLED
        call.cancel()
        await asyncio.wait_for(bench.running, PATIENCE)


@pytest.mark.parametrize("why", ["time is up", "second signal", "no drain"])
async def test_what_does_not_end_in_time_is_handed_back_and_resumed(
    redis_url: str, gateway: Gateway, why: str
) -> None:
    engine, address = paused(), f"127.0.0.1:{gateway.port}"
    drain = {"time is up": 0.2, "second signal": DAY, "no drain": 0.0}[why]
    async with working(redis_url, engine, name="old", drain=drain, gateway=address) as old:
        call = gateway.reason(small())
        await read_until(call, is_state(pb.TREE_STATE_RUNNING))
        await eventually(both_added(engine))
        await engine.advance(30)
        old.stop.set()
        if why == "second signal":
            await becomes(gateway, "old", "draining")
            assert not old.running.done()
            old.hurry.set()
        await asyncio.wait_for(old.running, PATIENCE)
        assert engine.resident() == []
        new = RecordingEngine(drawn(2), ScriptedConfig(slots=8))
        async with working(redis_url, new, name="new", gateway=address) as bench:
            answer = await read(call)
            assert answer.result is not None
            tree_id = answer.result.name.removeprefix("trees/")
            record = await ended(bench.store, tree_id)
    assert (record.state, record.worker, record.epoch) == (TreeState.SUCCEEDED, "new", 2)
    # it went on where the old one had stopped
    assert record.usage["generated"] == engine.generated + new.generated
    assert engine.generated >= 60


async def test_an_idle_worker_stops_at_once(redis_url: str, gateway: Gateway) -> None:
    async with working(redis_url, paused(), drain=DAY, gateway=f"127.0.0.1:{gateway.port}") as bench:
        bench.stop.set()
        await asyncio.wait_for(bench.running, PATIENCE)


async def test_a_worker_whose_engine_dies_while_it_drains_ends(redis_url: str, gateway: Gateway) -> None:
    with pytest.raises(EngineError, match="the engine has died"):
        await drained_and_died(redis_url, gateway)


async def drained_and_died(redis_url: str, gateway: Gateway) -> None:
    engine = paused()
    async with working(redis_url, engine, drain=DAY, gateway=f"127.0.0.1:{gateway.port}") as bench:
        call = gateway.reason(small())
        await read_until(call, is_state(pb.TREE_STATE_RUNNING))
        call.cancel()
        bench.stop.set()
        await becomes(gateway, "first", "draining")
        engine.die()
        await asyncio.wait([bench.running], timeout=PATIENCE)
        assert bench.running.done()


async def test_what_a_worker_says_of_itself(redis_url: str, gateway: Gateway) -> None:
    async with working(redis_url, paused(), max_capacity=77, gateway=f"127.0.0.1:{gateway.port}"):
        await becomes(gateway, "first", "serving")
        fields = await gateway.store._redis.hgetall("tb:worker:first")
    said = {name.decode(): value.decode() for name, value in fields.items()}
    assert said == {
        "model": "scripted",
        "slots": "8",
        "free_slots": "8",
        "waiting_traces": "0",
        "trees": "0",
        "kv_use": "0.0000",
        "engine_step": "0",
        "state": "serving",
        "max_context": "4096",
        "max_capacity": "77",
        "scorer": "scripted",
        "prm_workers": "1",
    }
