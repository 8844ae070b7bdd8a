from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from redis import exceptions as redis_errors

from tree_store.errors import (
    OpenNodesError,
    RequestReusedError,
    SequenceGapError,
    StaleEpochError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    TransitionRefusedError,
    TreeNotFoundError,
    refusal,
    translated,
)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ("NOT_FOUND tb:{t}:meta", TreeNotFoundError),
        ("REUSED t", RequestReusedError),
        ("STALE_EPOCH epoch 1 has ended", StaleEpochError),
        ("SEQUENCE_GAP seq 3 follows 1", SequenceGapError),
        ("TREE_REFUSED running it cannot be assigned", TransitionRefusedError),
        ("NODE_REFUSED 5 live no step to ghost", TransitionRefusedError),
        ("OPEN_NODES running 2 of 3 nodes have ended", OpenNodesError),
        ("WRONGTYPE Operation against a key", StoreError),
    ],
)
def test_each_refusal_has_its_class(reply: str, kind: type[StoreError]) -> None:
    assert type(refusal(reply)) is kind


def test_a_refused_step_says_from_where() -> None:
    node, tree = refusal("NODE_REFUSED 5 live no step to live"), refusal("TREE_REFUSED expired too late")

    assert isinstance(node, TransitionRefusedError)
    assert (node.node, node.state, str(node)) == (5, "live", "node 5 is live: no step to live")
    assert isinstance(tree, TransitionRefusedError)
    assert (tree.node, tree.state) == (None, "expired")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (redis_errors.OutOfMemoryError("command not allowed"), StoreFullError),
        (redis_errors.ConnectionError("refused"), StoreUnavailableError),
        (redis_errors.TimeoutError("slow"), StoreUnavailableError),
        (redis_errors.BusyLoadingError("loading"), StoreUnavailableError),
        (redis_errors.ResponseError("STALE_EPOCH epoch 1 has ended"), StaleEpochError),
        (redis_errors.InvalidResponse("protocol error"), StoreError),
    ],
)
async def test_nothing_of_redis_py_gets_out(raised: Exception, kind: type[StoreError]) -> None:
    with pytest.raises(kind) as translation, translated():
        raise raised

    assert translation.value.__cause__ is raised


async def test_a_cancellation_that_was_swallowed_is_raised() -> None:
    async def swallow() -> None:
        with translated(), suppress(asyncio.CancelledError):
            await asyncio.sleep(60)

    task = asyncio.create_task(swallow())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_that_is_ending_can_still_use_the_store() -> None:
    used = False

    async def clean_up() -> None:
        nonlocal used
        try:
            await asyncio.sleep(60)
        finally:
            with translated():
                await asyncio.sleep(0)
            used = True

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert used
