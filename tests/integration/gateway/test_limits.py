"""What is too large ends its own call with a clear status; what is idle for long does not end at all."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    Gateway,
    is_state,
    read_until,
    refused,
    request,
    running_gateway,
    watched,
)
from tests.integration.gateway.scripted_worker import scripted_worker
from thoughtbeam.runtime.rpc import (
    KEEPALIVE,
    MAX_MESSAGE_BYTES,
    MAX_METADATA_BYTES,
    Keepalive,
    open_channel,
)
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


async def works(gateway: Gateway, stub: Any) -> None:
    """A search from question to answer, over this stub."""
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        await stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
        watching = asyncio.create_task(
            watched(stub.WatchTree(pb.WatchTreeRequest(name=f"trees/{asked.request_id}")))
        )
        await (await worker.take()).answer()
        assert (await watching)[-1].tree.state == pb.TREE_STATE_SUCCEEDED


@pytest.mark.parametrize("size", [MAX_METADATA_BYTES, 64 * MAX_METADATA_BYTES])
async def test_metadata_that_is_too_large_fails_its_call_only(gateway: Gateway, size: int) -> None:
    asked = request()
    standing = gateway.reason(asked)
    await read_until(standing, is_state(pb.TREE_STATE_QUEUED))
    metadata = (("x-request-context", "x" * size),)
    name = f"trees/{asked.request_id}"

    for call in (
        gateway.stub.Submit(pb.SubmitRequest(search=asked.search), metadata=metadata),
        gateway.stub.GetTree(pb.GetTreeRequest(name=name), metadata=metadata),
        gateway.stub.Reason(request(), metadata=metadata).read(),
    ):
        assert (await refused(call)).code is EXHAUSTED

    assert [tree.tree_id for tree in await gateway.store.list_trees(10)] == [asked.request_id]
    await gateway.stub.CancelTree(pb.CancelTreeRequest(name=name))
    await read_until(standing, is_state(pb.TREE_STATE_CANCELLED))
    await works(gateway, gateway.stub)


async def test_metadata_below_the_limit_passes(gateway: Gateway) -> None:
    metadata = (("x-request-context", "x" * (MAX_METADATA_BYTES * 3 // 4)),)

    reply = await gateway.stub.Submit(pb.SubmitRequest(search=request().search), metadata=metadata)

    assert reply.tree.state == pb.TREE_STATE_QUEUED


async def test_a_message_that_is_too_large_fails_its_call_only(gateway: Gateway) -> None:
    too_long = request(question="x" * (MAX_MESSAGE_BYTES + 1))
    # a client that has no limit of its own, as those of other makers
    no_limit = [("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.port}", options=no_limit) as channel:
        stub: Any = reasoning_pb2_grpc.ReasoningServiceStub(channel)
        for call in (
            stub.Submit(pb.SubmitRequest(search=too_long.search)),
            stub.Reason(too_long).read(),
            gateway.stub.Submit(pb.SubmitRequest(search=too_long.search)),
        ):
            error = await refused(call)
            assert error.code is EXHAUSTED
            assert str(MAX_MESSAGE_BYTES) in error.message
        assert await gateway.store.list_trees(10) == []
        await works(gateway, stub)
    await works(gateway, gateway.stub)


async def test_a_prompt_that_is_too_long_is_named(gateway: Gateway) -> None:
    # below what a message may be, above what a prompt may be
    error = await refused(
        gateway.stub.Submit(pb.SubmitRequest(search=request(question="x" * 1_000_001).search))
    )

    assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    [violation] = error.violations
    assert violation.field == "search.question"
    assert "at most 1000000 characters" in violation.description


async def test_thousands_of_calls_at_the_same_moment_are_all_answered(gateway: Gateway) -> None:
    # as when a gateway comes back, and whoever it served with it
    calls = (gateway.stub.ListPolicies(pb.ListPoliciesRequest()) for _ in range(3000))

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert answers == [pb.ListPoliciesResponse()] * 3000


@asynccontextmanager
async def pinged_gateway(config: GatewayConfig, tolerated: float) -> AsyncIterator[Gateway]:
    """A gateway whose clients ping six hundred times as often as in service: 3 s are half an hour.

    It does not ping itself: its pings would take the place of theirs.
    """
    async with (
        running_gateway(config, Keepalive(interval=3600.0, tolerated=tolerated)) as gateway,
        open_channel(f"127.0.0.1:{gateway.port}", Keepalive(interval=KEEPALIVE.interval / 600)) as channel,
    ):
        yield dataclasses.replace(gateway, channel=channel)


async def test_a_stream_that_stays_idle_is_not_ended(config: GatewayConfig) -> None:
    async with pinged_gateway(config, tolerated=KEEPALIVE.tolerated / 600) as gateway:
        asked = request()
        idle = gateway.reason(asked)
        await read_until(idle, is_state(pb.TREE_STATE_QUEUED))
        async with scripted_worker(gateway.channel, gateway.store) as worker:
            await gateway.knows_policies()
            # when nothing happens on either stream for long, then both go on
            await asyncio.sleep(3.0)
            assert not worker.ended.is_set()
            await worker.grant()
            await (await worker.take()).answer()
            await read_until(idle, is_state(pb.TREE_STATE_SUCCEEDED))


async def test_a_server_that_tolerates_fewer_pings_would_end_it(config: GatewayConfig) -> None:
    # what the test before would see if pings and what is tolerated did not go together
    async with pinged_gateway(config, tolerated=300.0) as gateway:
        idle = gateway.reason(request())
        await read_until(idle, is_state(pb.TREE_STATE_QUEUED))

        error = await refused(idle.read())

    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert "Too many pings" in error.message
