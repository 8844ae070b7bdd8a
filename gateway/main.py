"""One gateway process: its parts, wired; its flags; its life from start to stop."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Sequence

import grpc

from gateway.answering import Answering
from gateway.config import GatewayConfig
from gateway.dispatcher import Dispatcher
from gateway.fleet import Fleet
from gateway.reaper import reap
from gateway.reasoning_service import ReasoningService
from gateway.work_service import WorkService
from thoughtbeam.runtime.log import EventLogger, setup_logging
from thoughtbeam.runtime.rpc import Server, start_server, stop_on_signals
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
    config: GatewayConfig, stop: asyncio.Event, on_listening: Callable[[int], None] = lambda port: None
) -> None:
    """Runs a gateway until `stop` is set and its calls have ended. on_listening: called with the port.

    Raises OSError when the address cannot be bound.
    """
    store = TreeStore.connect(config.redis_url)
    fleet = Fleet()
    dispatcher = Dispatcher(store, fleet, config.lease)
    answering = Answering()
    reasoning = ReasoningService(store, fleet, answering, config)
    work = WorkService(fleet, dispatcher, answering, config.dispatch_rate)
    try:
        server = await start_server(
            config.listen,
            [
                lambda server: reasoning_pb2_grpc.add_ReasoningServiceServicer_to_server(reasoning, server),
                lambda server: work_pb2_grpc.add_WorkServiceServicer_to_server(work, server),
            ],
            SERVICES,
        )
        log.info("listening", port=server.port)
        on_listening(server.port)
        try:
            async with task_group() as tasks:
                background = [
                    tasks.create_task(_follow_store(store, server), name="store health"),
                    tasks.create_task(dispatcher.run(), name="dispatcher"),
                    tasks.create_task(reap(store, config.reap_interval), name="reaper"),
                ]
                await stop.wait()
                log.info("stopping", grace=config.grace)
                fleet.close(_stopping())
                last_call = asyncio.get_running_loop().call_later(config.grace, reasoning.end_streams)
                await server.stop(config.grace + _LAST_WORDS)
                last_call.cancel()
                for task in background:
                    task.cancel()
        finally:
            await server.stop(0)
            reasoning.end_streams()
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


def parse(arguments: Sequence[str] | None = None) -> tuple[GatewayConfig, str | None]:
    """The configuration and the log level from the command line; exits with a message when it is not good."""
    default = GatewayConfig()
    parser = argparse.ArgumentParser(
        prog="python -m gateway",
        description="Serves clients and decoder workers.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--listen", default=default.listen, metavar="HOST:PORT", help="port 0: any free one")
    add("--redis-url", default=default.redis_url, metavar="URL", help="redis://, rediss:// or unix://")
    add(
        "--max-queued",
        type=int,
        default=default.max_queued,
        metavar="TREES",
        help="that may wait for a worker",
    )
    add("--lease", type=float, default=default.lease, metavar="SECONDS", help="of a tree just assigned")
    add(
        "--default-deadline",
        type=float,
        default=default.default_deadline,
        metavar="SECONDS",
        help="of a request",
    )
    add("--max-deadline", type=float, default=default.max_deadline, metavar="SECONDS", help="at most a day")
    add("--max-prompt-chars", type=int, default=default.max_prompt_chars, metavar="N", help="of a request")
    add(
        "--dispatch-rate",
        type=int,
        default=default.dispatch_rate,
        metavar="N",
        help="trees a second to one worker",
    )
    add(
        "--reap-interval",
        type=float,
        default=default.reap_interval,
        metavar="SECONDS",
        help="between two sweeps",
    )
    add(
        "--cancel-wait",
        type=float,
        default=default.cancel_wait,
        metavar="SECONDS",
        help="for a cancelled tree",
    )
    add("--grace", type=float, default=default.grace, metavar="SECONDS", help="for running calls on SIGTERM")
    add("--log-level", default=None, choices=["debug", "info", "warning", "error"], help="of stderr")
    given = vars(parser.parse_args(arguments))
    level = given.pop("log_level")
    try:
        return GatewayConfig(**given), level
    except ValueError as error:
        parser.error(str(error))


async def _run(config: GatewayConfig) -> None:
    await serve(config, stop_on_signals())


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until SIGTERM or SIGINT."""
    config, level = parse(arguments)
    setup_logging(level)
    try:
        asyncio.run(_run(config))
    except OSError as error:
        raise SystemExit(str(error)) from error
