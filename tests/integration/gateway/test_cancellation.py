"""CancelTree: queued, running here, running elsewhere, ended, unknown."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid

import grpc
import pytest

from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    PATIENCE,
    Gateway,
    is_state,
    queue_shrinks_to,
    read,
    read_until,
    request,
    running_gateway,
    watched,
)
from tests.integration.gateway.scripted_worker import LIVE, scripted_worker
from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import Batch, NodeChange, NodeState, Outcome, TreeState, VoteRecord


async def cancel(gateway: Gateway, tree_id: str) -> pb.Tree:
    reply = await gateway.stub.CancelTree(pb.CancelTreeRequest(name=f"trees/{tree_id}"))
    tree: pb.Tree = reply.tree
    return tree


async def test_a_queued_tree_is_cancelled_at_once(gateway: Gateway) -> None:
    asked = request()
    call = gateway.reason(asked)
    await read_until(call, is_state(pb.TREE_STATE_QUEUED))

    tree = await cancel(gateway, asked.request_id)
    error = (await read(call)).error

    assert tree.state == pb.TREE_STATE_CANCELLED
    assert tree.result.answer_state == pb.ANSWER_STATE_NO_ANSWER
    assert error is not None
    assert (error.code, error.reason) == (grpc.StatusCode.CANCELLED, "TREE_CANCELLED")
    assert error.metadata == {"tree": tree.name}
    await queue_shrinks_to(gateway.store, 0)


async def test_a_cancelled_tree_is_not_given_to_a_worker(gateway: Gateway) -> None:
    gone, next_one = request(), request()
    for asked in (gone, next_one):
        await read_until(gateway.reason(asked), is_state(pb.TREE_STATE_QUEUED))
    await cancel(gateway, gone.request_id)

    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        search = await worker.take()

    assert search.tree_id == next_one.request_id


async def test_the_worker_of_a_running_tree_ends_it_and_the_partial_result_is_kept(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        search = await worker.take()
        await search.commit(Batch(nodes=(NodeChange(1, None, LIVE), NodeChange(2, None, LIVE))))
        cancelling = asyncio.create_task(cancel(gateway, asked.request_id))
        assert await worker.told_to_cancel() == asked.request_id
        ended = (
            NodeChange(1, NodeState.LIVE, (NodeState.FINISHED,)),
            NodeChange(2, NodeState.LIVE, (NodeState.CANCELLED,)),
        )
        partial = Outcome("41", 1, 1.0, 1.0, "", (VoteRecord("41", 1.0, (1,)),))
        await search.finish(TreeState.CANCELLED, Batch(nodes=ended), partial)
        tree, answer = await cancelling, await answering

    assert (tree.state, tree.result.answer.text) == (pb.TREE_STATE_CANCELLED, "41")
    assert answer.result is None
    assert answer.error is not None
    assert answer.error.code is grpc.StatusCode.CANCELLED
    assert [e.tree.reason for e in answer.events if e.HasField("tree")].count("cancel_requested") == 1


@pytest.mark.parametrize("by", ["call", "disconnect"])
async def test_a_cancellation_amid_a_search_waits_for_nothing_that_comes_round(
    config: GatewayConfig, by: str
) -> None:
    # given a gateway whose sweeps and a worker whose renewals are an hour away
    asked = request(cancel_on_disconnect=True)
    async with (
        running_gateway(dataclasses.replace(config, reap_interval=3600.0, cancel_wait=0.0)) as gateway,
        scripted_worker(gateway.channel, gateway.store) as worker,
    ):
        await worker.grant()
        call = gateway.reason(asked)
        search = await worker.take()
        await read_until(call, is_state(pb.TREE_STATE_RUNNING))
        watching = asyncio.create_task(
            watched(gateway.stub.WatchTree(pb.WatchTreeRequest(name=f"trees/{asked.request_id}")))
        )
        # when it is cancelled
        if by == "call":
            await cancel(gateway, asked.request_id)
        else:
            call.cancel()
        # then the worker is told, and whoever watches, within the test's patience
        assert await worker.told_to_cancel() == asked.request_id
        await search.finish(TreeState.CANCELLED)
        events = await watching
        if by == "call":
            error = (await read(call)).error
            assert error is not None
            assert error.code is grpc.StatusCode.CANCELLED

    assert events[-1].tree.state == pb.TREE_STATE_CANCELLED


async def test_a_worker_that_is_slow_to_end_does_not_hold_the_call(config: GatewayConfig) -> None:
    asked = request()
    async with (
        running_gateway(dataclasses.replace(config, cancel_wait=0.1)) as gateway,
        scripted_worker(gateway.channel, gateway.store) as worker,
    ):
        await worker.grant()
        call = gateway.reason(asked)
        await worker.take()
        tree = await cancel(gateway, asked.request_id)
        call.cancel()

    assert tree.state == pb.TREE_STATE_RUNNING


async def test_a_worker_connected_elsewhere_learns_it_from_its_lease(gateway: Gateway) -> None:
    asked = request()
    call = gateway.reason(asked)
    await read_until(call, is_state(pb.TREE_STATE_QUEUED))
    assigned = await gateway.store.assign(asked.request_id, "elsewhere", 60)

    cancelling = asyncio.create_task(cancel(gateway, asked.request_id))
    async with asyncio.timeout(PATIENCE):
        while not await gateway.store.renew(asked.request_id, assigned.epoch, 60):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await gateway.store.finish(asked.request_id, assigned.epoch, 1, Batch(), TreeState.CANCELLED, None, None)
    call.cancel()

    assert (await cancelling).state == pb.TREE_STATE_CANCELLED


async def test_cancelling_what_has_ended_changes_nothing(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        await (await worker.take()).answer()
        await answering
        before = await gateway.get(asked.request_id)
        tree = await cancel(gateway, asked.request_id)

    assert before == await gateway.get(asked.request_id)
    before.ClearField("last_event_id")  # of GetTree only
    assert tree == before
    assert tree.state == pb.TREE_STATE_SUCCEEDED


async def test_an_unknown_tree_is_not_found(gateway: Gateway) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await cancel(gateway, str(uuid.uuid4()))

    assert from_rpc_error(caught.value).reason == "TREE_NOT_FOUND"
