"""A server at `maxmemory`: nothing new gets in, what was accepted can still end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.tree_store.helpers import (
    CANCELLED,
    FAILURE,
    LEASE,
    LIVE,
    Client,
    assert_accounted,
    created,
    new_tree,
    queued,
    running,
    snapshot,
    spawn,
)
from tree_store.errors import StoreFullError
from tree_store.leases import Swept
from tree_store.model import Batch, NodeChange, TreeState
from tree_store.store import TreeStore


@pytest.fixture
def fill(client: Client) -> Iterator[None]:
    """Undoes what `_fill` did."""
    before = client.config_get("maxmemory*")
    yield
    client.config_set("maxmemory", before["maxmemory"])
    client.config_set("maxmemory-policy", before["maxmemory-policy"])


def _fill(client: Client) -> None:
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 1)


@pytest.mark.usefixtures("fill")
async def test_nothing_is_written_and_the_error_says_so(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE))
    waiting = await queued(store)
    before = snapshot(client, tree_id), snapshot(client, waiting)

    _fill(client)

    with pytest.raises(StoreFullError):
        await store.create(new_tree())
    with pytest.raises(StoreFullError):
        await store.assign(waiting, "worker", LEASE)
    with pytest.raises(StoreFullError):
        await store.commit(tree_id, epoch, 2, Batch(nodes=(NodeChange(1, LIVE, text="x"), created(2, LIVE))))
    with pytest.raises(StoreFullError):
        await store.announce_worker("worker", {"slots": "8"}, 10)
    assert (snapshot(client, tree_id), snapshot(client, waiting)) == before


@pytest.mark.usefixtures("fill")
async def test_what_was_accepted_can_end(store: TreeStore, client: Client) -> None:
    finishing, epoch = await running(store)
    await store.commit(finishing, epoch, 1, spawn(LIVE))
    cancelled = await queued(store)
    failed, failed_epoch = await running(store)
    await store.commit(failed, failed_epoch, 1, spawn(LIVE))

    _fill(client)

    assert not await store.renew(finishing, epoch, LEASE)
    last = Batch(nodes=(NodeChange(1, LIVE, (CANCELLED,)),))
    await store.finish(finishing, epoch, 2, last, TreeState.FAILED, None, FAILURE)
    await store.request_cancel(cancelled)
    await store.fail(failed, failed_epoch, FAILURE)
    for tree_id in (finishing, cancelled, failed):
        assert (await store.tree(tree_id)).state.terminal
        assert_accounted(client, tree_id)


@pytest.mark.usefixtures("fill")
async def test_the_sweep_goes_on(store: TreeStore, client: Client) -> None:
    overdue, lost = await queued(store, seconds=-1), (await running(store, lease=-1))[0]

    _fill(client)

    assert await store.sweep() == Swept(requeued=(lost,), expired=(overdue,))
    assert (await store.tree(lost)).state is TreeState.QUEUED
