"""Trees from creation to their end, through every transition there is and none that there is not."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.integration.tree_store.helpers import (
    DAY,
    FAILURE,
    FINISHED,
    GHOST,
    HELD,
    LEASE,
    LIVE,
    NO_ANSWER,
    PENDING,
    Client,
    assert_accounted,
    in_state,
    keys_of,
    new_tree,
    queued,
    running,
    snapshot,
    spawn,
)
from tree_store.errors import (
    RequestReusedError,
    StaleEpochError,
    TransitionRefusedError,
    TreeNotFoundError,
)
from tree_store.keys import TreeKeys
from tree_store.leases import Swept
from tree_store.model import TREE_TRANSITIONS, Batch, TreeState
from tree_store.store import TreeStore
from tree_store.writes import LATE_VOTE


async def test_a_new_tree_can_be_read(store: TreeStore, client: Client) -> None:
    new = new_tree()

    assert await store.create(new)

    record = await store.tree(new.tree_id)
    assert record.state is TreeState.QUEUED
    assert (record.search, record.digest, record.question) == (new.search, new.digest, new.question)
    assert (record.model, record.policy, record.profile) == (new.model, new.policy, new.profile)
    assert record.deadline == pytest.approx(new.deadline, abs=0.001)
    assert record.created == pytest.approx(time.time(), abs=5)
    assert (record.epoch, record.started, record.ended, record.outcome, record.failure) == (0, *[None] * 4)
    assert set(record.counts.values()) == {0}
    assert record.usage == {"prompt": 0, "generated": 0, "recomputed": 0}
    assert client.zscore("tb:trees", new.tree_id) == pytest.approx(record.created, abs=0.1)


async def test_the_same_request_is_acknowledged_and_another_refused(store: TreeStore, client: Client) -> None:
    new = new_tree()
    assert await store.create(new)
    before = snapshot(client, new.tree_id), client.zrange("tb:trees", 0, -1, withscores=True)

    assert not await store.create(new_tree(new.tree_id))
    with pytest.raises(RequestReusedError, match=new.tree_id):
        await store.create(new_tree(new.tree_id, digest="another"))

    assert (snapshot(client, new.tree_id), client.zrange("tb:trees", 0, -1, withscores=True)) == before


async def test_every_assignment_has_an_epoch_of_its_own(store: TreeStore) -> None:
    tree_id, first = await running(store)
    await store.commit(tree_id, first, 1, Batch())
    await store.requeue(tree_id, first)

    second = await store.assign(tree_id, "another", LEASE)

    assert (first, second.epoch) == (1, 2)
    assert second.search == new_tree().search
    record = await store.tree(tree_id)
    assert (record.worker, record.epoch) == ("another", 2)
    assert record.started is not None


async def test_a_tree_past_its_deadline_is_not_assigned(store: TreeStore) -> None:
    tree_id = await queued(store, seconds=-0.1)

    with pytest.raises(TransitionRefusedError, match="deadline") as refused:
        await store.assign(tree_id, "worker", LEASE)

    assert refused.value.state == TreeState.QUEUED
    assert await store.expire(tree_id)
    failure = (await store.tree(tree_id)).failure
    assert failure is not None
    assert failure.reason == "DEADLINE_EXCEEDED"


async def _ran_past_its_deadline(store: TreeStore, client: Client, *, by: float) -> str:
    """A tree that came back to the queue, with a live and a finished node, its deadline `by` seconds ago."""
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE, FINISHED))
    client.hset(TreeKeys(tree_id).meta, "deadline", f"{time.time() - by:.3f}")
    await store.requeue(tree_id, epoch)
    return tree_id


async def test_a_tree_that_has_run_is_assigned_past_its_deadline(store: TreeStore, client: Client) -> None:
    tree_id = await _ran_past_its_deadline(store, client, by=LATE_VOTE - 30)

    assert await store.sweep() == Swept()
    assert not await store.expire(tree_id)
    assert (await store.assign(tree_id, "another", LEASE)).epoch == 2


async def test_a_tree_that_has_run_fails_when_nobody_takes_it_again(store: TreeStore, client: Client) -> None:
    tree_id = await _ran_past_its_deadline(store, client, by=LATE_VOTE)

    assert not await store.expire(tree_id)
    assert await store.sweep() == Swept(given_up=(tree_id,))
    assert await store.give_up(tree_id)

    record = await store.tree(tree_id)
    assert record.state is TreeState.FAILED
    assert record.failure is not None
    assert "lost its worker" in record.failure.message
    assert (record.counts["cancelled"], record.counts["finished"]) == (1, 1)
    assert_accounted(client, tree_id)


async def test_a_tree_that_never_ran_is_not_given_up(store: TreeStore) -> None:
    tree_id = await queued(store, seconds=-2 * LATE_VOTE)

    assert not await store.give_up(tree_id)

    assert await store.sweep() == Swept(expired=(tree_id,))


async def test_a_tree_does_not_expire_before_its_deadline(store: TreeStore) -> None:
    tree_id = await queued(store)

    assert not await store.expire(tree_id)

    assert (await store.tree(tree_id)).state is TreeState.QUEUED


async def test_a_tree_is_lost_when_its_lease_runs_out_and_not_before(store: TreeStore) -> None:
    tree_id, epoch = await running(store, lease=0.05)
    assert not await store.renew(tree_id, epoch, LEASE)
    await asyncio.sleep(0.1)
    assert not await store.requeue_expired(tree_id)

    await store.renew(tree_id, epoch, 0.05)
    await asyncio.sleep(0.1)

    assert await store.requeue_expired(tree_id)
    assert not await store.requeue_expired(tree_id)
    assert (await store.tree(tree_id)).state is TreeState.QUEUED
    with pytest.raises(StaleEpochError):
        await store.renew(tree_id, epoch, LEASE)
    with pytest.raises(StaleEpochError):
        await store.commit(tree_id, epoch, 1, Batch())


async def test_a_tree_handed_back_waits_in_the_queue_again(store: TreeStore) -> None:
    tree_id, epoch = await running(store)
    [(entry, _)] = await store.queue()
    await store.drop(entry)

    await store.requeue(tree_id, epoch)
    await store.requeue(tree_id, epoch)

    assert [tree for _, tree in await store.queue()] == [tree_id]


async def test_cancelling_a_queued_tree_ends_it_and_takes_it_out_of_the_queue(store: TreeStore) -> None:
    tree_id = await queued(store)

    record = await store.request_cancel(tree_id)

    assert record.state is TreeState.CANCELLED
    assert record.ended is not None
    assert await store.queue_length() == 0


async def test_cancelling_a_running_tree_tells_its_owner_once(store: TreeStore) -> None:
    tree_id, epoch = await running(store)

    records = [await store.request_cancel(tree_id) for _ in range(2)]

    assert [r.state for r in records] == [TreeState.RUNNING] * 2
    assert all(r.cancel_requested for r in records)
    assert await store.renew(tree_id, epoch, LEASE)
    reasons = [e.fields.get("reason") for e in await store.events(tree_id)]
    assert reasons.count("cancel_requested") == 1


@pytest.mark.parametrize("state", [s for s in TreeState if s.terminal])
async def test_cancelling_what_has_ended_changes_nothing(store: TreeStore, state: TreeState) -> None:
    tree_id = await in_state(store, state)
    before, events = await store.tree(tree_id), await store.events(tree_id)

    assert await store.request_cancel(tree_id) == before

    assert await store.events(tree_id) == events


async def test_a_tree_handed_back_after_a_cancel_ends_with_its_nodes(
    store: TreeStore, client: Client
) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(PENDING, LIVE, HELD, GHOST))
    await store.request_cancel(tree_id)

    await store.requeue(tree_id, epoch)

    record = await store.tree(tree_id)
    assert record.state is TreeState.CANCELLED
    assert record.counts["cancelled"] == record.counts["nodes"] == 4
    assert_accounted(client, tree_id)
    assert all(client.pttl(key) <= DAY * 1000 for key in keys_of(client, tree_id))


async def test_a_failure_is_kept_as_it_was_given(store: TreeStore) -> None:
    tree_id, epoch = await running(store)

    await store.fail(tree_id, epoch, FAILURE)
    await store.fail(tree_id, epoch, FAILURE)

    record = await store.tree(tree_id)
    assert (record.state, record.failure) == (TreeState.FAILED, FAILURE)
    assert [e.fields["to"] for e in await store.events(tree_id)] == ["queued", "running", "failed"]


async def test_an_owner_fails_a_tree_with_the_nodes_that_an_earlier_one_left(
    store: TreeStore, client: Client
) -> None:
    tree_id, first = await running(store)
    await store.commit(tree_id, first, 1, spawn(PENDING, LIVE, HELD, GHOST, FINISHED))
    await store.requeue(tree_id, first)
    epoch = (await store.assign(tree_id, "another", LEASE)).epoch
    before = snapshot(client, tree_id)

    with pytest.raises(StaleEpochError):
        await store.fail(tree_id, first, FAILURE)
    assert snapshot(client, tree_id) == before
    await store.fail(tree_id, epoch, FAILURE)

    record = await store.tree(tree_id)
    assert record.state is TreeState.FAILED
    assert (record.counts["cancelled"], record.counts["finished"]) == (4, 1)
    assert_accounted(client, tree_id)
    assert all(client.pttl(key) <= DAY * 1000 for key in keys_of(client, tree_id))


@pytest.mark.parametrize("state", [TreeState.QUEUED, TreeState.SUCCEEDED, TreeState.CANCELLED])
async def test_only_a_running_tree_can_be_failed(store: TreeStore, client: Client, state: TreeState) -> None:
    tree_id = await in_state(store, state)
    before = snapshot(client, tree_id)

    with pytest.raises(StaleEpochError):
        await store.fail(tree_id, (await store.tree(tree_id)).epoch, FAILURE)

    assert snapshot(client, tree_id) == before


Operation = Callable[[TreeStore, str], Awaitable[object]]

# For every step of a tree: what takes it there, from whatever state it is in.
OPERATIONS: dict[TreeState, list[Operation]] = {
    TreeState.QUEUED: [lambda s, t: s.requeue(t, 1)],
    TreeState.RUNNING: [lambda s, t: s.assign(t, "worker", LEASE)],
    TreeState.SUCCEEDED: [lambda s, t: s.finish(t, 1, 2, Batch(), TreeState.SUCCEEDED, NO_ANSWER, None)],
    TreeState.FAILED: [
        lambda s, t: s.give_up(t),
        lambda s, t: s.fail(t, 1, FAILURE),
        lambda s, t: s.finish(t, 1, 2, Batch(), TreeState.FAILED, None, FAILURE),
    ],
    TreeState.CANCELLED: [
        lambda s, t: s.request_cancel(t),
        lambda s, t: s.finish(t, 1, 2, Batch(), TreeState.CANCELLED, None, None),
    ],
    TreeState.EXPIRED: [lambda s, t: s.expire(t)],
}


@pytest.mark.parametrize(
    ("start", "goal"), [pair for pair in itertools.product(TreeState, repeat=2) if pair[0] is not pair[1]]
)
async def test_trees_make_the_steps_of_the_model_and_no_other(
    store: TreeStore, client: Client, start: TreeState, goal: TreeState
) -> None:
    tree_id = await in_state(store, start)
    if start is TreeState.RUNNING:
        await store.commit(tree_id, 1, 1, Batch())
    if (start, goal) == (TreeState.QUEUED, TreeState.EXPIRED):
        client.hset(TreeKeys(tree_id).meta, "deadline", "1.000")
    if (start, goal) == (TreeState.QUEUED, TreeState.FAILED):
        client.hset(TreeKeys(tree_id).meta, mapping={"deadline": "1.000", "epoch": 1})

    for operation in OPERATIONS[goal]:
        # refused, or acknowledged without effect
        with suppress(TransitionRefusedError, StaleEpochError):
            await operation(store, tree_id)

    reached = (await store.tree(tree_id)).state
    assert reached is (goal if goal in TREE_TRANSITIONS[start] else start)


@pytest.mark.parametrize(
    "operation",
    [
        lambda s, t: s.tree(t),
        lambda s, t: s.nodes(t),
        lambda s, t: s.events(t),
        lambda s, t: s.assign(t, "worker", LEASE),
        lambda s, t: s.renew(t, 1, LEASE),
        lambda s, t: s.commit(t, 1, 1, Batch()),
        lambda s, t: s.finish(t, 1, 1, Batch(), TreeState.CANCELLED, None, None),
        lambda s, t: s.requeue(t, 1),
        lambda s, t: s.requeue_expired(t),
        lambda s, t: s.request_cancel(t),
        lambda s, t: s.fail(t, 1, FAILURE),
        lambda s, t: s.expire(t),
        lambda s, t: s.give_up(t),
        lambda s, t: s.delete(t),
    ],
)
async def test_an_unknown_tree_is_not_found_and_not_made(
    store: TreeStore, client: Client, operation: Operation
) -> None:
    tree_id = str(uuid.uuid4())

    with pytest.raises(TreeNotFoundError, match=f"^no tree {tree_id}$"):
        await operation(store, tree_id)

    assert keys_of(client, tree_id) == []


async def test_trees_are_listed_newest_first_in_pages(store: TreeStore, client: Client) -> None:
    ids = [await queued(store) for _ in range(5)]
    client.zadd("tb:trees", {"never-created": client.zscore("tb:trees", ids[2])})

    pages, before = [], None
    while page := await store.list_trees(2, before):
        pages.append([record.tree_id for record in page])
        before = page[-1].place

    assert pages == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]


async def test_pages_go_on_when_what_they_go_on_from_is_gone(store: TreeStore, client: Client) -> None:
    ids = [await in_state(store, TreeState.FAILED) for _ in range(5)]
    # some of them made at the very same time
    client.zadd("tb:trees", dict.fromkeys(ids[1:4], client.zscore("tb:trees", ids[2])))
    order = [ids[4], *sorted(ids[1:4], reverse=True), ids[0]]

    listed, before = [], None
    while page := await store.list_trees(1, before):
        listed.append(page[0].tree_id)
        before = page[0].place
        await store.delete(page[0].tree_id)

    assert listed == order
