"""The queue, the workers' presence, and the sweep that looks after what others have dropped."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.integration.tree_store.helpers import (
    LEASE,
    LIVE,
    NO_ANSWER,
    Client,
    new_tree,
    queued,
    running,
    spawn,
)
from tree_store import leases
from tree_store.errors import TransitionRefusedError
from tree_store.keys import QUEUE, TREES, WORKERS, TreeKeys
from tree_store.leases import Swept
from tree_store.model import Batch, TreeState
from tree_store.store import TreeStore


async def test_trees_keep_their_place_in_the_queue_until_they_are_dropped(store: TreeStore) -> None:
    ids = [await queued(store) for _ in range(4)]

    first = await store.queue(count=2)
    second = await store.queue(first[-1][0])

    assert [tree for _, tree in first + second] == ids
    await store.drop(first[1][0])
    await store.drop(first[1][0])
    assert await store.queue() == [first[0], *second]
    assert await store.queue(first[1][0]) == second
    assert await store.queue_length() == 3
    assert await store.queue(second[-1][0]) == []


async def test_a_reader_waits_for_a_tree(store: TreeStore) -> None:
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(store.queue(block=5))
        await asyncio.sleep(0.1)
        assert not reading.done()
        tree_id = await queued(store)

    assert [tree for _, tree in reading.result()] == [tree_id]


async def test_putting_a_tree_into_the_queue_again_changes_nothing(store: TreeStore) -> None:
    tree_id = await queued(store)
    await store.enqueue(tree_id)
    await store.assign(tree_id, "worker", LEASE)

    await store.enqueue(tree_id)

    assert await store.queue_length() == 1


async def test_a_tree_that_comes_twice_is_assigned_once(store: TreeStore, client: Client) -> None:
    tree_id = await queued(store)
    client.hset(TreeKeys(tree_id).meta, "queue_entry", "")  # as after a crash between the two writes
    await store.enqueue(tree_id)
    entries = await store.queue()
    assert [tree for _, tree in entries] == [tree_id, tree_id]

    await store.assign(tree_id, "worker", LEASE)
    with pytest.raises(TransitionRefusedError) as refused:
        await store.assign(tree_id, "another", LEASE)

    assert refused.value.state == TreeState.RUNNING


async def test_workers_are_there_until_they_fall_silent(store: TreeStore, client: Client) -> None:
    await store.announce_worker("a@host:1", {"slots": "32", "draining": "1"}, 30)
    await store.announce_worker("a@host:1", {"slots": "64"}, 30)
    await store.announce_worker("b@host:2", {"slots": "8"}, 30)
    assert [w.worker for w in await store.workers()] == ["a@host:1", "b@host:2"]

    await store.announce_worker("b@host:2", {"slots": "8"}, 0.05)
    await asyncio.sleep(0.1)

    assert [(w.worker, w.slots) for w in await store.workers()] == [("a@host:1", 64)]
    assert client.pttl("tb:worker:a@host:1") > 0
    await store.sweep()
    assert client.zrange(WORKERS, 0, -1) == ["a@host:1"]


async def test_a_worker_that_says_that_it_leaves_is_gone_at_once(store: TreeStore, client: Client) -> None:
    for worker in ("a@host:1", "b@host:2"):
        await store.announce_worker(worker, {"slots": "8"}, 30)

    for _ in range(2):  # as after a lost reply
        await store.withdraw_worker("a@host:1")
        assert [w.worker for w in await store.workers()] == ["b@host:2"]

    assert not client.exists("tb:worker:a@host:1")
    assert client.zrange(WORKERS, 0, -1) == ["b@host:2"]


async def test_a_sweep_without_work_does_nothing(store: TreeStore) -> None:
    waiting = await queued(store)
    tree_id, _ = await running(store)

    for _ in range(2):
        assert await store.sweep() == Swept()

    assert [(await store.tree(t)).state for t in (waiting, tree_id)] == [TreeState.QUEUED, TreeState.RUNNING]
    assert await store.sweep() == Swept()


async def test_the_sweep_requeues_what_lost_its_worker(store: TreeStore) -> None:
    tree_id, epoch = await running(store, lease=0.05)
    [(entry, _)] = await store.queue()
    await store.drop(entry)
    await store.commit(tree_id, epoch, 1, spawn(LIVE))
    await asyncio.sleep(0.1)

    assert await store.sweep() == Swept(requeued=(tree_id,))

    [(_, again)] = await store.queue()
    assert again == tree_id
    assert (await store.assign(tree_id, "another", LEASE)).epoch == 2


async def test_the_sweep_cancels_what_lost_its_worker_after_a_cancel(store: TreeStore) -> None:
    tree_id, epoch = await running(store, lease=0.05)
    await store.commit(tree_id, epoch, 1, spawn(LIVE))
    await store.request_cancel(tree_id)
    await asyncio.sleep(0.1)

    assert await store.sweep() == Swept(requeued=(tree_id,))

    record = await store.tree(tree_id)
    assert (record.state, record.counts["cancelled"]) == (TreeState.CANCELLED, 1)


async def test_the_sweep_cancels_what_came_back_to_the_queue_after_a_cancel(
    store: TreeStore, client: Client
) -> None:
    tree_id = await queued(store)
    client.hset(TreeKeys(tree_id).meta, "cancel_requested", 1)  # as after a crash while it was handed back

    assert await store.sweep() == Swept(cancelled=(tree_id,))

    assert (await store.tree(tree_id)).state is TreeState.CANCELLED


async def test_the_sweep_expires_what_waited_too_long(store: TreeStore) -> None:
    tree_id = await queued(store, seconds=0.05)
    await asyncio.sleep(0.1)

    assert await store.sweep() == Swept(expired=(tree_id,))

    assert (await store.tree(tree_id)).state is TreeState.EXPIRED
    assert await store.queue_length() == 0


async def test_the_sweep_finds_what_never_came_into_the_queue(store: TreeStore) -> None:
    new = new_tree()
    await store.create(new)

    assert await store.sweep() == Swept(enqueued=(new.tree_id,))
    assert await store.sweep() == Swept()

    assert [tree for _, tree in await store.queue()] == [new.tree_id]


async def test_the_sweep_refills_a_queue_that_was_lost(store: TreeStore, client: Client) -> None:
    ids = [await queued(store) for _ in range(3)]
    client.delete(QUEUE)

    swept = await store.sweep()

    assert swept == Swept(enqueued=tuple(ids))
    assert [tree for _, tree in await store.queue()] == ids


async def test_the_sweep_drops_ids_without_a_tree(store: TreeStore, client: Client) -> None:
    tree_id = await queued(store)
    client.zadd(TREES, {"just-listed": time.time(), "never-created": time.time() - 400, "gone": 1.0})

    assert await store.sweep() == Swept(strays=("gone", "never-created"))

    assert set(client.zrange(TREES, 0, -1)) == {tree_id, "just-listed"}


async def test_a_sweep_reads_what_is_open_and_not_what_is_kept(
    store: TreeStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "_SETTLED_AFTER", 0.0)
    monkeypatch.setattr(leases, "_CLOCK_SLACK", 0.0)

    def reads() -> int:
        return int(client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])

    open_tree, _ = await running(store)
    for _ in range(50):
        await store.request_cancel(await queued(store))
    await store.sweep()  # sees that they have ended

    before = reads()
    await store.sweep()

    assert reads() - before == 1
    assert (await store.tree(open_tree)).state is TreeState.RUNNING


async def test_a_tree_that_runs_again_after_it_had_ended_is_looked_after(
    store: TreeStore, client: Client
) -> None:
    tree_id, epoch = await running(store, lease=0.05)
    await store.finish(tree_id, epoch, 1, Batch(), TreeState.SUCCEEDED, NO_ANSWER, None)
    assert await store.sweep() == Swept()
    # as when Redis comes back without the last second
    client.hset(TreeKeys(tree_id).meta, mapping={"state": "running", "lease": "1.000"})

    assert await store.sweep() == Swept(requeued=(tree_id,))


async def test_an_old_tree_is_looked_after_however_many_ended_since(store: TreeStore) -> None:
    old, epoch = await running(store)
    for _ in range(3):
        await store.request_cancel(await queued(store))
        assert await store.sweep() == Swept()
    await store.renew(old, epoch, 0.05)
    await asyncio.sleep(0.1)

    assert await store.sweep() == Swept(requeued=(old,))
