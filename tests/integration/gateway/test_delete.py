"""DeleteTree: ended trees, open ones by force, and what readers and watchers see of it."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid

import grpc
import pytest
from redis.asyncio import Redis

from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    Gateway,
    is_state,
    read,
    read_until,
    refused,
    request,
    running_gateway,
    watched,
)
from tests.integration.gateway.scripted_worker import scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import TreeState


async def delete(gateway: Gateway, tree_id: str, *, force: bool = False) -> None:
    await gateway.stub.DeleteTree(pb.DeleteTreeRequest(name=f"trees/{tree_id}", force=force))


async def answered(gateway: Gateway) -> str:
    """A tree that has succeeded."""
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        await (await worker.take()).long_search()
        await answering
    return asked.request_id


async def test_a_deleted_tree_is_gone_and_its_request_id_is_new(gateway: Gateway, redis: Redis) -> None:
    tree_id, other = await answered(gateway), await answered(gateway)
    name = f"trees/{tree_id}"

    await delete(gateway, tree_id)

    assert [key async for key in redis.scan_iter(f"tb:{{{tree_id}}}:*")] == []
    listed = (await gateway.stub.ListTrees(pb.ListTreesRequest())).trees
    assert [tree.name for tree in listed] == [f"trees/{other}"]
    for call in (
        gateway.stub.GetTree(pb.GetTreeRequest(name=name)),
        gateway.stub.ListNodes(pb.ListNodesRequest(parent=name)),
        gateway.stub.GetTrace(pb.GetTraceRequest(name=f"{name}/nodes/1")).read(),
        gateway.stub.GetResult(pb.GetResultRequest(name=name)).read(),
        gateway.stub.WatchTree(pb.WatchTreeRequest(name=name)).read(),
        gateway.stub.CancelTree(pb.CancelTreeRequest(name=name)),
        gateway.stub.DeleteTree(pb.DeleteTreeRequest(name=name)),
        gateway.stub.DeleteTree(pb.DeleteTreeRequest(name=name, force=True)),
    ):
        error = await refused(call)
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND")
    again = gateway.reason(request(request_id=tree_id, question="Another one?"))
    await read_until(again, is_state(pb.TREE_STATE_QUEUED))
    again.cancel()


@pytest.mark.parametrize("running", [False, True], ids=["queued", "running"])
async def test_an_open_tree_is_deleted_by_force_only(gateway: Gateway, redis: Redis, running: bool) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        call = gateway.reason(asked)
        await read_until(call, is_state(pb.TREE_STATE_QUEUED))
        watching = asyncio.create_task(
            watched(gateway.stub.WatchTree(pb.WatchTreeRequest(name=f"trees/{asked.request_id}")))
        )
        if running:
            await worker.grant()
            search = await worker.take()
        error = await refused(delete(gateway, asked.request_id))
        deleting = asyncio.create_task(delete(gateway, asked.request_id, force=True))
        if running:
            assert await worker.told_to_cancel() == asked.request_id
            await search.finish(TreeState.CANCELLED)
        await deleting
        ended = await read(call)
        seen = (await asyncio.gather(watching, return_exceptions=True))[0]

    assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TREE_NOT_ENDED")
    assert "force" in error.message
    assert [key async for key in redis.scan_iter(f"tb:{{{asked.request_id}}}:*")] == []
    # whoever looked on saw the end, or that the tree is gone
    assert ended.error is not None
    assert ended.error.reason in ("TREE_CANCELLED", "TREE_NOT_FOUND")
    if isinstance(seen, BaseException):
        assert isinstance(seen, grpc.aio.AioRpcError)
        assert seen.code() is grpc.StatusCode.NOT_FOUND
    else:
        assert seen[-1].tree.state == pb.TREE_STATE_CANCELLED


async def test_a_tree_that_takes_its_time_to_end_is_deleted_by_a_repeat(config: GatewayConfig) -> None:
    asked = request()
    async with (
        running_gateway(dataclasses.replace(config, cancel_wait=0.1)) as gateway,
        scripted_worker(gateway.channel, gateway.store) as worker,
    ):
        await worker.grant()
        await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
        search = await worker.take()
        early = await refused(delete(gateway, asked.request_id, force=True))
        await search.finish(TreeState.CANCELLED)
        await delete(gateway, asked.request_id, force=True)
        gone = await refused(gateway.get(asked.request_id))

    assert (early.code, early.reason) == (grpc.StatusCode.UNAVAILABLE, "TREE_NOT_ENDED")
    assert early.retry_after == 1.0
    assert gone.reason == "TREE_NOT_FOUND"


async def test_what_a_dead_gateway_has_left_of_a_deletion_is_deleted(gateway: Gateway, redis: Redis) -> None:
    tree_id = await answered(gateway)
    await redis.rename(f"tb:{{{tree_id}}}:meta", f"tb:{{{tree_id}}}:deleted")

    for force in (True, False):
        call = delete(gateway, tree_id, force=force)
        if force:
            await call
        else:
            assert (await refused(call)).reason == "TREE_NOT_FOUND"

    assert [key async for key in redis.scan_iter(f"tb:{{{tree_id}}}:node:*")] == []


async def test_a_name_that_is_none_is_refused(gateway: Gateway) -> None:
    error = await refused(delete(gateway, str(uuid.uuid4()).upper()))

    assert [v.field for v in error.violations] == ["name"]
