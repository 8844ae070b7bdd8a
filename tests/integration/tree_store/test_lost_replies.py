"""redis-py repeats a command when the connection broke before its reply came: nothing may happen twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.integration.tree_store.helpers import (
    CANCELLED,
    FAILURE,
    LEASE,
    LIVE,
    NO_ANSWER,
    PENDING,
    Client,
    created,
    keys_of,
    new_tree,
    queued,
    running,
)
from tests.integration.tree_store.lossy_proxy import LossyProxy
from tree_store import connection
from tree_store.errors import StoreUnavailableError
from tree_store.keys import TreeKeys
from tree_store.model import Batch, NodeChange, TreeState
from tree_store.store import TreeStore


@pytest_asyncio.fixture
async def proxy(redis_url: str, client: Client) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(redis_url).serving() as found:
        yield found


@pytest_asyncio.fixture
async def lossy(store: TreeStore, proxy: LossyProxy) -> AsyncIterator[TreeStore]:
    """A store behind the proxy; `store` has loaded the scripts."""
    found = TreeStore.connect(proxy.url)
    await found.ping()
    yield found
    await found.close()


Transition = Callable[[TreeStore, str], Awaitable[object]]
GROWTH = Batch(
    nodes=(created(2, PENDING, LIVE, tokens=(1, 2), text="so\n\n"), NodeChange(1, LIVE, (PENDING, LIVE))),
    fields={"generated": "2"},
)
END = Batch(nodes=(NodeChange(1, LIVE, (CANCELLED,)),))


async def _queued(store: TreeStore) -> str:
    return await queued(store)


async def _ended(store: TreeStore) -> str:
    tree_id = await _running(store)
    await store.finish(tree_id, 1, 2, END, TreeState.CANCELLED, NO_ANSWER, None)
    return tree_id


async def _overdue(store: TreeStore) -> str:
    return await queued(store, seconds=-1)


async def _running(store: TreeStore) -> str:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, Batch(nodes=(created(1, PENDING, LIVE),)))
    return tree_id


async def _lease_ran_out(store: TreeStore) -> str:
    return (await running(store, lease=-1))[0]


async def _not_resumed(store: TreeStore) -> str:
    tree_id = await _running(store)
    await store.requeue(tree_id, 1)
    await store._redis.hset(TreeKeys(tree_id).meta, "deadline", "1.000")
    return tree_id


@pytest.mark.parametrize(
    ("start", "transition", "events", "state"),
    [
        (_queued, lambda s, t: s.assign(t, "worker", LEASE), 1, TreeState.RUNNING),
        (_queued, lambda s, t: s.request_cancel(t), 1, TreeState.CANCELLED),
        (_running, lambda s, t: s.fail(t, 1, FAILURE), 2, TreeState.FAILED),
        (_overdue, lambda s, t: s.expire(t), 1, TreeState.EXPIRED),
        (_not_resumed, lambda s, t: s.give_up(t), 2, TreeState.FAILED),
        (_running, lambda s, t: s.commit(t, 1, 2, GROWTH), 4, TreeState.RUNNING),
        (_running, lambda s, t: s.renew(t, 1, LEASE), 0, TreeState.RUNNING),
        (_running, lambda s, t: s.request_cancel(t), 1, TreeState.RUNNING),
        (_running, lambda s, t: s.requeue(t, 1), 1, TreeState.QUEUED),
        (_lease_ran_out, lambda s, t: s.requeue_expired(t), 1, TreeState.QUEUED),
        (
            _running,
            lambda s, t: s.finish(t, 1, 2, END, TreeState.SUCCEEDED, NO_ANSWER, None),
            2,
            TreeState.SUCCEEDED,
        ),
    ],
)
async def test_a_transition_whose_reply_was_lost_happens_once(
    store: TreeStore,
    lossy: TreeStore,
    proxy: LossyProxy,
    start: Callable[[TreeStore], Awaitable[str]],
    transition: Transition,
    events: int,
    state: TreeState,
) -> None:
    tree_id = await start(store)
    before = await store.events(tree_id)

    proxy.lose = 1
    await transition(lossy, tree_id)

    assert proxy.lost == 1
    after = await store.events(tree_id)
    assert len(after) == len(before) + events
    assert (await store.tree(tree_id)).state is state


async def test_an_assignment_whose_reply_was_lost_keeps_its_epoch(
    store: TreeStore, lossy: TreeStore, proxy: LossyProxy
) -> None:
    tree_id = await queued(store)

    proxy.lose = 1
    assigned = await lossy.assign(tree_id, "worker", LEASE)

    assert assigned.epoch == (await store.tree(tree_id)).epoch == 1
    assert assigned.search == new_tree().search


@pytest.mark.parametrize("keep", [0, 1])
async def test_a_creation_whose_reply_was_lost_is_still_a_creation(
    store: TreeStore, lossy: TreeStore, proxy: LossyProxy, keep: int
) -> None:
    new = new_tree()

    proxy.keep, proxy.lose = keep, 1
    assert await lossy.create(new)

    assert len(await store.events(new.tree_id)) == 1
    assert [record.tree_id for record in await store.list_trees(5)] == [new.tree_id]


@pytest.mark.parametrize("keep", range(6))
async def test_a_deletion_whose_reply_was_lost_is_still_one(
    store: TreeStore, lossy: TreeStore, proxy: LossyProxy, client: Client, keep: int
) -> None:
    tree_id = await _ended(store)

    proxy.keep, proxy.lose = keep, 1
    await lossy.delete(tree_id)

    assert proxy.lost == 1
    assert not keys_of(client, tree_id)
    assert await store.list_trees(5) == []


async def test_a_commit_whose_reply_was_lost_appends_once(
    store: TreeStore, lossy: TreeStore, proxy: LossyProxy
) -> None:
    tree_id = await _running(store)

    proxy.lose = 2
    await lossy.commit(tree_id, 1, 2, GROWTH)

    [content] = await store.contents(tree_id, [2])
    assert (content.tokens, content.text) == ((1, 2), "so\n\n")


async def test_a_server_that_never_answers_is_unavailable(
    proxy: LossyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRIES", 2)
    store = TreeStore.connect(proxy.url)
    proxy.lose = 1000

    with pytest.raises(StoreUnavailableError):
        await store.ping()

    assert proxy.lost == 3
    await store.close()
