"""A tree store that is away for a while: searches wait for it, a worker that stops does not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest
from google.protobuf import json_format

from decoder_worker import patience, tree_run
from decoder_worker.engine.scripted import ScriptedConfig
from tests.integration.decoder_worker.door import Door
from tests.integration.decoder_worker.harness import (
    RecordingEngine,
    assert_each_token_counts_once,
    drawn,
    ended,
    queue,
    working,
)
from tests.integration.gateway.harness import eventually
from tests.integration.tree_store.lossy_proxy import LossyProxy
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store import connection
from tree_store.model import TreeState
from tree_store.store import TreeStore


@pytest.fixture
async def door(redis_url: str) -> AsyncIterator[Door]:
    async with Door(redis_url).serving() as serving:
        yield serving


def engine() -> RecordingEngine:
    return RecordingEngine(drawn(6), ScriptedConfig(slots=8))


def impatient(url: str, monkeypatch: pytest.MonkeyPatch) -> TreeStore:
    """A store whose calls fail at once where Redis is away; elsewhere they are tried for seconds first."""
    monkeypatch.setattr(connection, "RETRIES", 0)
    monkeypatch.setattr(patience, "RETRY_SECONDS", 0.05)
    try:
        return TreeStore.connect(url)
    finally:
        monkeypatch.setattr(connection, "RETRIES", 8)


async def refused(door: Door, more: int) -> None:
    wanted = door.refused + more

    async def there() -> bool:
        return door.refused >= wanted

    await eventually(there)


async def test_an_assignment_that_comes_meanwhile_is_delayed(
    redis_url: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = impatient(door.url, monkeypatch)
    async with working(redis_url, engine(), own_store=store) as bench:
        tree_id = await queue(bench.store, "self_consistency", parameters={"N": 4})
        door.shut()
        await bench.give(tree_id)
        await refused(door, 3)
        assert (await bench.store.tree(tree_id)).state is TreeState.RUNNING
        door.open()
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.counts["finished"] == 4


async def test_a_resumed_search_waits_too(
    redis_url: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = engine()
    first.pace(0)
    async with working(redis_url, first) as bench:
        tree_id = await bench.start("self_consistency", parameters={"N": 4})

        async def all_are_live() -> bool:
            return len(first.added) == 4

        await eventually(all_are_live)
        await first.advance(40)
    store = impatient(door.url, monkeypatch)
    async with working(redis_url, engine(), own_store=store, name="second") as bench:
        door.shut()
        await bench.give(tree_id)
        await refused(door, 3)
        door.open()
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.epoch == 2


async def test_a_search_under_way_goes_on_and_nothing_of_it_is_lost(
    redis_url: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, decoding = impatient(door.url, monkeypatch), engine()
    decoding.pace(0)
    async with working(redis_url, decoding, own_store=store) as bench:
        tree_id = await bench.start("best_of_n", parameters={"N": 8})

        async def all_are_live() -> bool:
            return len(decoding.added) == 8

        await eventually(all_are_live)
        await decoding.advance(30)
        door.shut()
        await decoding.advance(200)
        await refused(door, 3)
        door.open()
        decoding.pace(None)
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.usage["generated"] == decoding.generated


async def test_a_batch_whose_reply_was_lost_is_not_applied_twice(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = engine()
    async with LossyProxy(redis_url).serving() as proxy:
        store = impatient(proxy.url, monkeypatch)
        async with working(redis_url, decoding, own_store=store) as bench:
            decoding.pace(0)
            tree_id = await bench.start("best_of_n", parameters={"N": 8})

            async def all_are_live() -> bool:
                return len(decoding.added) == 8

            await eventually(all_are_live)
            for _ in range(3):
                # the next reply is that of a batch
                proxy.lose = 1
                await decoding.advance(60)  # in which boundaries are passed, and written

                async def lost() -> bool:
                    return not proxy.lose

                await eventually(lost)
            decoding.pace(None)
            record = await ended(bench.store, tree_id)
            await assert_each_token_counts_once(bench.store, record)
        assert proxy.lost == 3
    assert record.state is TreeState.SUCCEEDED
    assert record.usage["generated"] == decoding.generated


async def test_a_worker_stops_in_time_and_the_next_one_goes_on(
    redis_url: str, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_run, "HAND_BACK_SECONDS", 0.3)
    store, decoding = impatient(door.url, monkeypatch), engine()
    decoding.pace(0)
    async with working(redis_url, decoding, own_store=store) as bench:
        tree_id = await queue(bench.store, "self_consistency", parameters={"N": 4})
        # a lease that nobody renews any more soon runs out
        assigned = await bench.store.assign(tree_id, "first", 1.0)
        bench.worker.begin(tree_id, assigned.epoch, json_format.Parse(assigned.search, pb.Search()))

        async def all_are_live() -> bool:
            return len(decoding.added) == 4

        await eventually(all_are_live)
        await decoding.advance(20)
        door.shut()
        began = time.monotonic()
        bench.stop.set()

        async def stopped() -> bool:
            return not decoding.resident()

        await eventually(stopped)
    assert time.monotonic() - began < tree_run.HAND_BACK_SECONDS + 60.0
    # when the lease has run out, the tree is anyone's
    async with working(redis_url, engine(), name="second") as bench:

        async def requeued() -> bool:
            return await bench.store.requeue_expired(tree_id)

        await eventually(requeued)
        await bench.give(tree_id)
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.worker == "second"
