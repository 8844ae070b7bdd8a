"""The event feed: every transition, in order, once, readable from any event on."""

from __future__ import annotations

import asyncio
import dataclasses
import time
import uuid

import pytest

from tests.integration.tree_store.helpers import (
    FINISHED,
    LIVE,
    NO_ANSWER,
    PENDING,
    Client,
    new_tree,
    queued,
    running,
    spawn,
)
from tree_store.errors import EventsTrimmedError, TreeNotFoundError
from tree_store.events import Event
from tree_store.keys import TreeKeys
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
    assert [e.number for e in events] == list(range(1, len(events) + 1))
    assert all(abs(e.time - time.time()) < 10 for e in events)


async def test_a_feed_goes_on_from_any_event(store: TreeStore) -> None:
    tree_id = await _finished_tree(store)
    events = await store.events(tree_id)

    for place, event in enumerate(events, start=1):
        assert await store.events(tree_id, event.event_id) == events[place:]
    assert await store.events(tree_id, events[3].event_id, count=2) == events[4:6]


async def _bounded(store: TreeStore, max_events: int) -> tuple[str, int]:
    """A running tree whose feed keeps so many events."""
    new = dataclasses.replace(new_tree(), max_events=max_events)
    await store.create(new)
    return new.tree_id, (await store.assign(new.tree_id, "worker", 30)).epoch


@pytest.mark.parametrize("block", [5, 3600])
async def test_readers_wait_for_the_next_event_of_any_feed(store: TreeStore, block: float) -> None:
    trees = [await queued(store) for _ in range(3)]
    places = {tree_id: (await store.last_event(tree_id)).event_id for tree_id in trees}

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.new_events(places, block=block, count=10))
        await asyncio.sleep(0.1)
        assert not reading.done()
        await store.assign(trees[1], "worker", 30)

    assert {t: [e.fields["to"] for e in events] for t, events in reading.result().items()} == {
        trees[1]: ["running"]
    }


async def test_new_events_of_many_feeds_come_together_and_in_order(store: TreeStore) -> None:
    whole = {tree_id: await store.events(tree_id) for tree_id in [await _finished_tree(store) for _ in "ab"]}
    places = {tree_id: events[1].event_id for tree_id, events in whole.items()}

    assert await store.new_events(places, block=5, count=100) == {t: e[2:] for t, e in whole.items()}
    assert await store.new_events(places, block=5, count=3) == {t: e[2:5] for t, e in whole.items()}


async def test_a_reader_gives_up_in_time(store: TreeStore) -> None:
    tree_id = await queued(store)
    place = (await store.last_event(tree_id)).event_id
    start = time.monotonic()

    assert await store.new_events({tree_id: place}, block=0.2, count=1) == {}

    assert 0.15 < time.monotonic() - start < 60


async def test_a_cancelled_reader_leaves_the_store_usable(store: TreeStore, client: Client) -> None:
    tree_id = await queued(store)
    place = {tree_id: (await store.last_event(tree_id)).event_id}
    reading = asyncio.create_task(store.new_events(place, block=5, count=1))
    await asyncio.sleep(0.05)

    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    await store.assign(tree_id, "worker", 30)
    assert len((await store.new_events(place, block=5, count=1))[tree_id]) == 1
    assert not any(c["cmd"] == "xread" and "b" in c["flags"] for c in client.client_list())


@pytest.mark.parametrize("after", ["x", "5", "5-", "-1", "$", "1-2-3", "+", "1-0", "01-1", "1-" + "9" * 20])
async def test_an_id_that_is_none_is_refused(store: TreeStore, after: str) -> None:
    tree_id = await queued(store)

    with pytest.raises(ValueError, match="event id"):
        await store.events(tree_id, after)


@pytest.mark.parametrize("max_events", [1, 2, 7])
async def test_a_feed_keeps_its_newest_events_and_tells_what_is_gone(
    store: TreeStore, client: Client, max_events: int
) -> None:
    # given a feed of 12 events, of which it keeps some
    tree_id, epoch = await _bounded(store, max_events)
    seen = await store.events(tree_id, skip=True)
    await store.commit(tree_id, epoch, 1, spawn(LIVE, LIVE, LIVE, LIVE, LIVE))
    kept = await store.events(tree_id, skip=True)
    assert client.xlen(TreeKeys(tree_id).events) == max_events
    assert [event.number for event in kept] == list(range(13 - max_events, 13))

    # then whoever has the one before those can go on
    before = Event(f"{kept[0].event_id.partition('-')[0]}-{12 - max_events}", 0, "tree", {})
    for place, event in enumerate([before, *kept]):
        assert await store.events(tree_id, event.event_id) == kept[place:]
    # and whoever has an earlier one, or none, is told so, or goes on behind the gap if that is what it wants
    for after in ("", *(event.event_id for event in seen if event.number < 12 - max_events)):
        with pytest.raises(EventsTrimmedError):
            await store.events(tree_id, after)
        assert await store.events(tree_id, after, skip=True) == kept


async def test_a_slow_reader_that_is_overtaken_is_told_and_never_misses_an_event(store: TreeStore) -> None:
    # given a reader that takes one event at a time
    tree_id, epoch = await _bounded(store, 6)
    read: list[int] = []
    place = ""
    overtaken = False
    for seq in range(1, 30):
        try:
            for event in await store.events(tree_id, place, count=1 + seq % 2):
                read.append(event.number)
                place = event.event_id
        except EventsTrimmedError:
            overtaken = True
            break
        # when the tree is quicker than it
        await store.commit(tree_id, epoch, seq, Batch(nodes=(NodeChange(seq, None, (PENDING, LIVE)),)))

    assert overtaken
    assert read == list(range(1, len(read) + 1))
    assert len(read) > 6


async def test_an_event_that_the_feed_never_had_is_no_place_to_go_on_from(store: TreeStore) -> None:
    # as after a server that came back without its last second
    tree_id = await queued(store)
    last = await store.last_event(tree_id)
    time_, number = last.event_id.split("-")
    later, other = f"{int(time_) + 60_000}-{number}", f"{time_}-{int(number) + 5}"

    for place in (later, other):
        with pytest.raises(EventsTrimmedError):
            await store.events(tree_id, place)
        assert await store.events(tree_id, place, skip=True) == []
    await store.assign(tree_id, "worker", 30)
    with pytest.raises(EventsTrimmedError):
        await store.events(tree_id, other)


async def test_times_of_events_do_not_go_back_with_the_clock(store: TreeStore, client: Client) -> None:
    tree_id = await queued(store)
    ahead = int(time.time() * 1000) + 3_600_000
    client.xadd(TreeKeys(tree_id).events, {"type": "progress"}, id=f"{ahead}-2")

    await store.assign(tree_id, "worker", 30)

    assert (await store.last_event(tree_id)).event_id == f"{ahead}-3"


async def test_a_feed_that_is_not_there_is_told_apart_from_one_that_is_quiet(store: TreeStore) -> None:
    there, gone = await queued(store), str(uuid.uuid4())

    assert await store.without_feed([]) == []
    assert await store.without_feed([there]) == []
    assert await store.without_feed([gone, there]) == [gone]
    for read in (store.events(gone), store.last_event(gone)):
        with pytest.raises(TreeNotFoundError):
            await read
