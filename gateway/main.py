"""One gateway process: its parts, wired; its flags; its life from start to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import grpc

from gateway.answering import Answering
from gateway.config import GatewayConfig
from gateway.dispatcher import Dispatcher
from gateway.feed import Feeds
from gateway.fleet import Fleet
from gateway.reaper import reap
from gateway.reasoning_service import ReasoningService
from gateway.work_service import WorkService
from thoughtbeam.runtime.config import configure, refuse
from thoughtbeam.runtime.log import EventLogger, setup_logging
from thoughtbeam.runtime.rpc import KEEPALIVE, Keepalive, Server, start_server
from thoughtbeam.runtime.settings import SettingError
from thoughtbeam.runtime.signals import ending_at_once, stop_on_signals
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1 import reasoning_pb2, reasoning_pb2_grpc, work_pb2, work_pb2_grpc
from tree_store.errors import StoreError
from tree_store.store import TreeStore

log = EventLogger("gateway")

SERVICES = (
    reasoning_pb2.DESCRIPTOR.services_by_name["ReasoningService"].full_name,
    work_pb2.DESCRIPTOR.services_by_name["WorkService"].full_name,
)
# Seconds between two looks whether Redis answers, while it does and while it does not.
_PING_INTERVAL = 5.0
_RETRY_INTERVAL = 1.0
# What a stream may take to notice that it has to end.
_LAST_WORDS = 3.0


async def serve(
    config: GatewayConfig,
    stop: asyncio.Event,
    on_listening: Callable[[int], None] = lambda port: None,
    keepalive: Keepalive = KEEPALIVE,
) -> None:
    """Runs a gateway until `stop` is set and its calls have ended. on_listening: called with the port.

    Raises OSError when the address cannot be bound, SettingError when the password cannot be read.
    """
    store = TreeStore.connect(config.redis_url, config.redis_password())
    fleet = Fleet()
    feeds = Feeds(store)
    dispatcher = Dispatcher(store, fleet, config.lease)
    answering = Answering()
    reasoning = ReasoningService(store, fleet, feeds, answering, config)
    work = WorkService(fleet, dispatcher, answering, config.dispatch_rate)
    try:
        server = await start_server(
            config.listen,
            [
                lambda server: reasoning_pb2_grpc.add_ReasoningServiceServicer_to_server(reasoning, server),
                lambda server: work_pb2_grpc.add_WorkServiceServicer_to_server(work, server),
            ],
            SERVICES,
            keepalive,
        )
        log.info("listening", port=server.port)
        on_listening(server.port)
        try:
            async with task_group() as tasks:
                background = [
                    tasks.create_task(_follow_store(store, server), name="store health"),
                    tasks.create_task(dispatcher.run(), name="dispatcher"),
                    tasks.create_task(feeds.run(), name="feeds"),
                    tasks.create_task(reap(store, config.reap_interval), name="reaper"),
                ]
                await stop.wait()
                log.info("stopping", grace=config.grace)
                fleet.close(_stopping())
                last_call = asyncio.get_running_loop().call_later(config.grace, feeds.close)
                await server.stop(config.grace + _LAST_WORDS)
                last_call.cancel()
                for task in background:
                    task.cancel()
        finally:
            await server.stop(0)
            feeds.close()
            await answering.all_ended()
    finally:
        await store.close()
    log.info("stopped")


async def _follow_store(store: TreeStore, server: Server) -> None:
    """Keeps the server's health at whether Redis answers."""
    serving: bool | None = None
    while True:
        try:
            await store.ping()
        except StoreError as error:
            log.warning("store_unreachable", error=error)
            reachable = False
        else:
            reachable = True
        if reachable is not serving:
            serving = reachable
            await server.set_serving(serving)
            log.info("health", serving=serving)
        await asyncio.sleep(_PING_INTERVAL if serving else _RETRY_INTERVAL)


def _stopping() -> StatusError:
    return StatusError(grpc.StatusCode.UNAVAILABLE, "GATEWAY_STOPPING", "the gateway is stopping")


def parse(arguments: Sequence[str] | None = None) -> GatewayConfig:
    """The settings that a gateway is started with; exits with a message when they cannot be used."""
    return configure("gateway", GatewayConfig, "Serves clients and decoder workers.", arguments)


async def _run(config: GatewayConfig) -> None:
    await serve(config, stop_on_signals())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until SIGTERM or SIGINT."""
    config = parse(arguments)
    setup_logging(config.log_level, config.log_format)
    try:
        with ending_at_once():
            asyncio.run(_run(config))
    except SettingError as error:
        refuse("gateway", error)
    except OSError as error:
        raise SystemExit(str(error)) from error
