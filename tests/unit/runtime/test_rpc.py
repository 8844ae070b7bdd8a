"""Servers and channels: health, reflection, message limits, a port of one's own, signals."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from thoughtbeam.runtime.rpc import (
    KEEPALIVE,
    MAX_MESSAGE_BYTES,
    MAX_METADATA_BYTES,
    Keepalive,
    Server,
    open_channel,
    start_server,
)
from thoughtbeam.runtime.signals import stop_on_signals

SERVICE = "test.Echo"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def echo(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    return request


async def wait_for_end(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    await asyncio.Event().wait()
    return b""


async def idle(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """A stream on which nothing happens for as many seconds as the request says."""
    await asyncio.sleep(float(request))
    await context.write(b"awake")


async def trail(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
    """Answers with trailers of as many bytes as the request says."""
    context.set_trailing_metadata((("long", "x" * int(request)),))
    return b""


def register(server: grpc.aio.Server) -> None:
    methods = {
        "Say": grpc.unary_unary_rpc_method_handler(echo),
        "Hang": grpc.unary_unary_rpc_method_handler(wait_for_end),
        "Idle": grpc.unary_stream_rpc_method_handler(idle),
        "Trail": grpc.unary_unary_rpc_method_handler(trail),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = await start_server("127.0.0.1:0", [register], [SERVICE])
    yield server
    await server.stop(0)


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


async def test_services_are_not_serving_until_told(server: Server, channel: grpc.aio.Channel) -> None:
    health = health_pb2_grpc.HealthStub(channel)
    before = [await health.Check(health_pb2.HealthCheckRequest(service=s)) for s in ("", SERVICE)]
    await server.set_serving(True)
    after = [await health.Check(health_pb2.HealthCheckRequest(service=s)) for s in ("", SERVICE)]

    assert [b.status for b in before] == [NOT_SERVING, NOT_SERVING]
    assert [a.status for a in after] == [SERVING, SERVING]


async def test_reflection_lists_the_services(channel: grpc.aio.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([request])):
        listed = {service.name for service in answer.list_services_response.service}

    assert listed == {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}


async def test_messages_above_four_mebibytes_pass_and_the_limit_is_named(channel: grpc.aio.Channel) -> None:
    say = channel.unary_unary(f"/{SERVICE}/Say")

    assert len(await say(bytes(9 * 1024 * 1024))) == 9 * 1024 * 1024
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await say(bytes(MAX_MESSAGE_BYTES + 1))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MAX_MESSAGE_BYTES) in (caught.value.details() or "")
    assert await say(b"next") == b"next"


async def test_metadata_up_to_its_limit_passes_and_the_next_call_works_beyond_it(
    channel: grpc.aio.Channel,
) -> None:
    say, trail = channel.unary_unary(f"/{SERVICE}/Say"), channel.unary_unary(f"/{SERVICE}/Trail")

    # always or never, where gRPC's own two limits would decide by chance
    for _ in range(5):
        assert await say(b"x", metadata=(("long", "x" * 15_000),)) == b"x"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(b"x", metadata=(("long", "x" * (MAX_METADATA_BYTES + 1)),))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call = trail(b"15000")
        await call
        assert len(dict(await call.trailing_metadata())["long"]) == 15_000
    assert await say(b"next") == b"next"


PINGS = Keepalive(interval=0.1, timeout=5, tolerated=0.01)
FEW = Keepalive(interval=3600, timeout=5, tolerated=0.01)


@pytest.mark.parametrize("of_server", [PINGS, FEW], ids=["both ping", "the client pings"])
async def test_an_idle_stream_outlives_many_pings(of_server: Keepalive) -> None:
    server = await start_server("127.0.0.1:0", [register], [SERVICE], of_server)
    try:
        async with open_channel(f"127.0.0.1:{server.port}", PINGS) as channel:
            call = channel.unary_stream(f"/{SERVICE}/Idle")(b"3")
            assert [message async for message in call] == [b"awake"]
    finally:
        await server.stop(0)


async def test_a_server_that_tolerates_fewer_pings_than_it_gets_would_end_the_stream() -> None:
    # that is, the test above has pings
    strict = dataclasses.replace(FEW, tolerated=60)
    server = await start_server("127.0.0.1:0", [register], [SERVICE], strict)
    try:
        async with open_channel(f"127.0.0.1:{server.port}", PINGS) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                async for _ in channel.unary_stream(f"/{SERVICE}/Idle")(b"60"):
                    pass
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "too many pings" in (caught.value.details() or "").lower().replace("_", " ")
    finally:
        await server.stop(0)


async def test_the_times_that_are_used_do_not_end_in_goaway() -> None:
    assert KEEPALIVE.interval > KEEPALIVE.tolerated
    # what a router on the way forgets first is an idle connection of a few minutes
    assert KEEPALIVE.interval + KEEPALIVE.timeout <= 120


async def test_a_peer_that_is_gone_without_a_word_is_found_out() -> None:
    quick = Keepalive(interval=0.2, timeout=0.3, tolerated=0.01)
    server = await start_server("127.0.0.1:0", [register], [SERVICE], quick)
    frozen = asyncio.Event()
    started = time.monotonic()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not frozen.is_set():
                writer.write(data)
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(pass_on(reader, onward[1]))
            group.create_task(pass_on(onward[0], writer))

    between = await asyncio.start_server(relay, "127.0.0.1", 0)
    target = f"127.0.0.1:{between.sockets[0].getsockname()[1]}"
    async with between, open_channel(target, quick) as channel:
        say = channel.unary_unary(f"/{SERVICE}/Say")
        assert await say(b"x") == b"x"
        frozen.set()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await say(b"x")
    await server.stop(0)
    # gRPC's own limit is a minute
    assert time.monotonic() - started < 30
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_port_in_use_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
        await start_server(f"127.0.0.1:{server.port}", [register], [SERVICE])


async def test_stop_says_so_first_and_cuts_what_does_not_end(
    server: Server, channel: grpc.aio.Channel
) -> None:
    await server.set_serving(True)
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    seen = [(await watch.read()).status]
    hanging = channel.unary_unary(f"/{SERVICE}/Hang")(b"")

    stopping = asyncio.ensure_future(server.stop(0.2))
    seen.append((await watch.read()).status)
    await stopping
    await server.set_serving(True)

    assert seen == [SERVING, NOT_SERVING]
    with pytest.raises(grpc.aio.AioRpcError):
        await hanging


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_set_the_stop_event(number: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    again = asyncio.Event()
    stop = stop_on_signals(again)
    try:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 30)
        assert not again.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(again.wait(), 30)
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        loop.remove_signal_handler(signal.SIGINT)
