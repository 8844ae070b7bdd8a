"""A gateway starts before its Redis, is restarted under running searches, and stops in good order."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.config import GatewayConfig
from gateway.main import SERVICES
from tests.integration.gateway.harness import (
    PATIENCE,
    Gateway,
    eventually,
    is_state,
    read,
    read_until,
    request,
    running_gateway,
)
from tests.integration.gateway.scripted_worker import scripted_worker
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.embedded import EmbeddedServer, free_port
from tree_store.model import TreeState

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def health(channel: grpc.aio.Channel, service: str = "") -> int:
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))
    status: int = reply.status
    return status


async def test_a_search_outlives_the_gateway_that_took_it(config: GatewayConfig) -> None:
    asked = request()
    async with running_gateway(dataclasses.replace(config, grace=0.1)) as first:
        async with scripted_worker(first.channel, first.store) as worker:
            await worker.grant()
            call = first.reason(asked)
            search = await worker.take()
            await read_until(call, is_state(pb.TREE_STATE_RUNNING))
            # when the gateway stops
            await first.stop()
            cut = await read(call)
        await worker.ended.wait()
        # then the client is told to try again, and the worker to go elsewhere
        assert cut.error is not None
        assert (cut.error.code, cut.error.reason) == (grpc.StatusCode.UNAVAILABLE, "GATEWAY_STOPPING")
        assert worker.error is not None
        assert from_rpc_error(worker.error).reason == "GATEWAY_STOPPING"

        async with running_gateway(config) as second:
            # and the next gateway knows the tree and gives the retry its result
            assert (await second.get(asked.request_id)).state == pb.TREE_STATE_RUNNING
            retried = asyncio.create_task(second.ask(asked))
            await search.answer()
            answer = await retried

    assert answer.result is not None
    assert answer.result.answer.text == "42"
    assert [e.tree.state for e in answer.events if e.HasField("tree")] == [
        pb.TREE_STATE_QUEUED,
        pb.TREE_STATE_RUNNING,
        pb.TREE_STATE_SUCCEEDED,
    ]


async def test_a_stop_lets_running_calls_end(config: GatewayConfig) -> None:
    asked = request()
    async with (
        running_gateway(config) as gateway,
        scripted_worker(gateway.channel, gateway.store) as worker,
    ):
        await worker.grant()
        call = gateway.reason(asked)
        search = await worker.take()
        await read_until(call, is_state(pb.TREE_STATE_RUNNING))
        stopping = asyncio.create_task(gateway.stop())
        await worker.ended.wait()
        await search.answer()
        answer = await read(call)
        await stopping

    assert answer.error is None
    assert answer.result is not None


async def test_a_stop_is_not_a_client_that_goes_away(config: GatewayConfig) -> None:
    asked = request(cancel_on_disconnect=True)
    async with running_gateway(dataclasses.replace(config, grace=0.1)) as gateway:
        call = gateway.reason(asked)
        await read_until(call, is_state(pb.TREE_STATE_QUEUED))
        await gateway.stop()
        answer = await read(call)
        record = await gateway.store.tree(asked.request_id)

    assert answer.error is not None
    assert answer.error.code is grpc.StatusCode.UNAVAILABLE
    assert record.state is TreeState.QUEUED


async def test_health_follows_redis(tmp_path: Path, config: GatewayConfig) -> None:
    # given a gateway whose Redis is not there yet
    server = EmbeddedServer(tmp_path, free_port())
    url = f"redis://127.0.0.1:{server.port}"
    async with running_gateway(dataclasses.replace(config, redis_url=url)) as gateway:
        assert {await health(gateway.channel, name) for name in ("", *SERVICES)} == {NOT_SERVING}
        early = await gateway.ask(request())
        # when it comes
        server.start()
        try:

            async def serving() -> bool:
                return {await health(gateway.channel, name) for name in ("", *SERVICES)} == {SERVING}

            await eventually(serving)
            # then a search runs, also over a restart of it
            asked = request()
            call = gateway.reason(asked)
            await read_until(call, is_state(pb.TREE_STATE_QUEUED))
            server.stop()
            server.start()
            rest = asyncio.create_task(read(call))
            async with scripted_worker(gateway.channel, gateway.store) as worker:
                await worker.grant()
                await (await worker.take()).answer()
                answer = await rest
                while answer.error is not None and answer.error.code is grpc.StatusCode.UNAVAILABLE:
                    answer = await gateway.ask(asked)  # as a client does: the restart took its time
        finally:
            server.stop()

    assert early.error is not None
    assert (early.error.code, early.error.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert answer.result is not None


async def test_the_process_starts_serves_and_stops_on_sigterm(
    config: GatewayConfig, gateway: Gateway, tmp_path: Path
) -> None:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "gateway",
        "--listen",
        f"127.0.0.1:{port}",
        "--redis-url",
        config.redis_url,
    ]
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(*command, "--grace", "5", stderr=stderr)
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:

            async def serving() -> bool:
                try:
                    return await health(channel) == SERVING
                except grpc.aio.AioRpcError:
                    return False

            await eventually(serving)
            other = dataclasses.replace(gateway, channel=channel)
            answering = asyncio.create_task(other.ask(request(question="What is the secret number?")))
            async with scripted_worker(gateway.channel, gateway.store) as worker:
                await worker.grant()
                await (await worker.take()).answer("4711")
                answer = await answering
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()

    lines = log.read_text()
    assert answer.result is not None
    assert code == 0
    assert "gateway stopped" in lines
    assert "tree_accepted" in lines
    # neither the question nor the answer
    assert "secret" not in lines
    assert "4711" not in lines


def test_an_address_in_use_is_a_message_and_an_exit_code(tmp_path: Path) -> None:
    async def run() -> tuple[int, str]:
        async with running_gateway(GatewayConfig(redis_url="redis://127.0.0.1:1")) as gateway:
            command = [sys.executable, "-m", "gateway", "--listen", f"127.0.0.1:{gateway.port}"]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE
            )
            return done.returncode, done.stderr

    code, said = asyncio.run(run())

    assert code == 1
    assert "cannot listen on 127.0.0.1:" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "flag", ["--max-queued=0", "--lease=0", "--max-deadline=90000", "--default-deadline=-1"]
)
def test_a_bad_flag_is_a_message_and_an_exit_code(flag: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", flag], capture_output=True, text=True, timeout=PATIENCE
    )

    assert done.returncode == 2
    assert flag.partition("=")[0].removeprefix("--").replace("-", "_") in done.stderr
