"""The event feed: every transition, in order, once, readable from any event on."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.integration.tree_store.helpers import (
    FINISHED,
    LIVE,
    NO_ANSWER,
    PENDING,
    Client,
    queued,
    running,
    spawn,
)
from tree_store.model import Batch, NodeChange, TreeState
from tree_store.store import TreeStore


async def _finished_tree(store: TreeStore) -> str:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE, LIVE))
    await store.requeue(tree_id, epoch)
    epoch = (await store.assign(tree_id, "another", 30)).epoch
    back = Batch(nodes=tuple(NodeChange(n, LIVE, (PENDING, LIVE, FINISHED)) for n in (1, 2)))
    await store.finish(tree_id, epoch, 1, back, TreeState.SUCCEEDED, NO_ANSWER, None)
    return tree_id


async def test_every_transition_is_there_in_order_and_once(store: TreeStore) -> None:
    tree_id = await _finished_tree(store)

    events = await store.events(tree_id)

    steps = [(e.fields.get("node", "tree"), e.fields.get("from", ""), e.fields["to"]) for e in events]
    assert steps == [
        ("tree", "", "queued"),
        ("tree", "queued", "running"),
        ("1", "", "pending"),
        ("1", "pending", "live"),
        ("2", "", "pending"),
        ("2", "pending", "live"),
        ("tree", "running", "queued"),
        ("tree", "queued", "running"),
        ("1", "live", "pending"),
        ("1", "pending", "live"),
        ("1", "live", "finished"),
        ("2", "live", "pending"),
        ("2", "pending", "live"),
        ("2", "live", "finished"),
        ("tree", "running", "succeeded"),
    ]
    ids = [tuple(map(int, e.event_id.split("-"))) for e in events]
    assert ids == sorted(set(ids))
    assert all(abs(e.time - time.time()) < 10 for e in events)


async def test_a_feed_goes_on_from_any_event(store: TreeStore) -> None:
    tree_id = await _finished_tree(store)
    events = await store.events(tree_id)

    for place, event in enumerate(events, start=1):
        assert await store.events(tree_id, event.event_id) == events[place:]
    assert await store.events(tree_id, events[3].event_id, count=2) == events[4:6]


async def test_a_reader_waits_for_the_next_event(store: TreeStore) -> None:
    tree_id = await queued(store)
    [creation] = await store.events(tree_id)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.events(tree_id, creation.event_id, block=5))
        await asyncio.sleep(0.1)
        assert not reading.done()
        await store.assign(tree_id, "worker", 30)

    assert [e.fields["to"] for e in reading.result()] == ["running"]


async def test_a_reader_gives_up_in_time(store: TreeStore) -> None:
    tree_id = await queued(store)
    [creation] = await store.events(tree_id)
    start = time.monotonic()

    assert await store.events(tree_id, creation.event_id, block=0.2) == []

    assert 0.15 < time.monotonic() - start < 60


async def test_a_cancelled_reader_leaves_the_store_usable(store: TreeStore, client: Client) -> None:
    tree_id = await queued(store)
    [creation] = await store.events(tree_id)
    reading = asyncio.create_task(store.events(tree_id, creation.event_id, block=5))
    await asyncio.sleep(0.05)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    await store.assign(tree_id, "worker", 30)
    assert len(await store.events(tree_id, creation.event_id, block=5)) == 1
    assert not any(c["cmd"] == "xread" and "b" in c["flags"] for c in client.client_list())


@pytest.mark.parametrize("after", ["x", "5-", "-1", "$", "1-2-3", "+"])
async def test_an_id_that_is_none_is_refused(store: TreeStore, after: str) -> None:
    tree_id = await queued(store)

    with pytest.raises(ValueError, match="event id"):
        await store.events(tree_id, after)
