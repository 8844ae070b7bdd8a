"""Deleting a tree: at once for whoever reads, in steps in Redis, and gone on with when it was cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.tree_store.helpers import (
    CANCELLED,
    FINISHED,
    LIVE,
    NO_ANSWER,
    PENDING,
    Client,
    assert_accounted,
    created,
    in_state,
    keys_of,
    new_tree,
    running,
    snapshot,
)
from tree_store.errors import TransitionRefusedError, TreeNotFoundError
from tree_store.keys import TREES
from tree_store.model import Batch, NodeChange, Outcome, RoundRecord, Thought, TreeState
from tree_store.store import TreeStore

ENDED = [state for state in TreeState if state.terminal]


async def _large(store: TreeStore, nodes: int = 600) -> str:
    """An ended tree with every kind of key."""
    tree_id, epoch = await running(store)
    changes = tuple(
        created(
            n,
            PENDING,
            LIVE,
            FINISHED,
            tokens=(1,),
            text="x\n\n",
            thoughts=(Thought(1, 0.5),),
            confidences=(7.0,),
            history=b"\x00\x3c",
        )
        for n in range(1, nodes + 1)
    )
    rounds = (RoundRecord(1, nodes, nodes, nodes, 0, 0.5, (), ()),)
    await store.commit(tree_id, epoch, 1, Batch(nodes=changes, policy_state="{}", rounds=rounds))
    await store.finish(tree_id, epoch, 2, Batch(), TreeState.SUCCEEDED, Outcome("1", 1), None)
    return tree_id


async def test_nothing_of_a_deleted_tree_is_left(store: TreeStore, client: Client) -> None:
    tree_id, other = await _large(store), await in_state(store, TreeState.SUCCEEDED)
    assert len(keys_of(client, tree_id)) > 5 * 600
    kept = snapshot(client, other)

    await store.delete(tree_id)

    assert keys_of(client, tree_id) == []
    assert client.zrange(TREES, 0, -1) == [other]
    assert snapshot(client, other) == kept
    reads: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.tree(tree_id),
        lambda: store.nodes(tree_id),
        lambda: store.events(tree_id),
        lambda: store.stretches(tree_id, 1),
        lambda: store.request_cancel(tree_id),
        lambda: store.delete(tree_id),
    ]
    for read in reads:
        with pytest.raises(TreeNotFoundError):
            await read()


@pytest.mark.parametrize("state", ENDED)
async def test_a_tree_that_has_ended_in_any_way_can_be_deleted(
    store: TreeStore, client: Client, state: TreeState
) -> None:
    tree_id = await in_state(store, state)

    await store.delete(tree_id)

    assert keys_of(client, tree_id) == []
    assert await store.list_trees(5) == []


async def test_a_deleted_tree_leaves_the_queue_if_nobody_has_taken_it_out(
    store: TreeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree_id = await in_state(store, TreeState.QUEUED)

    async def dies(entry: str) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(store, "drop", dies)
        with pytest.raises(asyncio.CancelledError):
            await store.request_cancel(tree_id)
    assert await store.queue_length() == 1

    await store.delete(tree_id)

    assert await store.queue_length() == 0


@pytest.mark.parametrize("state", [TreeState.QUEUED, TreeState.RUNNING])
async def test_a_tree_that_has_not_ended_is_kept(store: TreeStore, client: Client, state: TreeState) -> None:
    tree_id = await in_state(store, state)
    before = snapshot(client, tree_id)

    with pytest.raises(TransitionRefusedError) as refused:
        await store.delete(tree_id)

    assert refused.value.state == state
    assert snapshot(client, tree_id) == before
    assert [tree.tree_id for tree in await store.list_trees(5)] == [tree_id]


async def _cut_short(store: TreeStore, monkeypatch: pytest.MonkeyPatch, tree_id: str, steps: int) -> None:
    """A deletion whose process dies after so many scripts."""
    run, left = store._run, [steps]

    async def dying(*args: Any) -> Any:
        if not left[0]:
            raise asyncio.CancelledError
        left[0] -= 1
        return await run(*args)

    with monkeypatch.context() as patched:
        patched.setattr(store, "_run", dying)
        with pytest.raises(asyncio.CancelledError):
            await store.delete(tree_id)


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_deletion_that_was_cut_short_goes_on(
    store: TreeStore, client: Client, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    tree_id = await _large(store)
    await _cut_short(store, monkeypatch, tree_id, steps)

    # meanwhile nobody sees half a tree, and what is left has an expiry
    with pytest.raises(TreeNotFoundError):
        await store.tree(tree_id)
    assert await store.list_trees(5) == []
    left = keys_of(client, tree_id)
    assert len(left) > 1
    assert all(client.pttl(key) > 0 for key in left)
    await store.delete(tree_id)

    assert keys_of(client, tree_id) == []
    assert client.zcard(TREES) == 0


async def test_a_tree_made_amid_the_deletion_of_its_predecessor_is_a_whole_one(
    store: TreeStore, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree_id = await _large(store)
    await _cut_short(store, monkeypatch, tree_id, 2)

    assert await store.create(new_tree(tree_id))

    assert (await store.tree(tree_id)).counts["nodes"] == 0
    assert len(keys_of(client, tree_id)) == 2
    assert [tree.tree_id for tree in await store.list_trees(5)] == [tree_id]
    epoch = (await store.assign(tree_id, "worker", 30)).epoch
    await store.commit(tree_id, epoch, 1, Batch(nodes=(created(1, PENDING, LIVE),)))
    assert_accounted(client, tree_id)
    end = Batch(nodes=(NodeChange(1, LIVE, (CANCELLED,)),))
    await store.finish(tree_id, epoch, 2, end, TreeState.SUCCEEDED, NO_ANSWER, None)


async def test_trees_deleted_and_made_again_at_the_same_time_stay_whole_and_listed(
    store: TreeStore, client: Client
) -> None:
    # given trees that are deleted by some while others make them again
    trees = [await _large(store, nodes=300) for _ in range(10)]

    async def delete(tree_id: str) -> None:
        # another one was first, or it has been made again
        with suppress(TreeNotFoundError, TransitionRefusedError):
            await store.delete(tree_id)

    async def make(tree_id: str) -> bool:
        return await store.create(new_tree(tree_id))

    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            for tree_id in trees:
                for _ in range(2):
                    group.create_task(delete(tree_id))
                    group.create_task(make(tree_id))
        listed = {tree.tree_id for tree in await store.list_trees(100)}
        for tree_id in trees:
            try:
                state = (await store.tree(tree_id)).state
            except TreeNotFoundError:
                assert keys_of(client, tree_id) == []
                continue
            assert tree_id in listed
            assert_accounted(client, tree_id)
            if state is TreeState.QUEUED:
                assert len(keys_of(client, tree_id)) == 2
                await store.request_cancel(tree_id)
