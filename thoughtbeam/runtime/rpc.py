"""gRPC servers and channels with the settings that all our processes share."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from grpc_health.v1._async import HealthServicer

# 256 boundary rows of a model with hidden size 8,192 in float32 are 8 MiB; leave room above it.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_KEEPALIVE = [
    # A stream may be idle for half an hour (a search that waits in the queue): ping to keep middleboxes
    # from dropping it, and let clients ping without being told to go away.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
]
_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
]
# A peer that was away is found again within seconds, however long it was (gRPC's own limit is two minutes).
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
CHANNEL_OPTIONS: Sequence[tuple[str, int]] = [*_KEEPALIVE, *_LIMITS, *_RECONNECT]
SERVER_OPTIONS: Sequence[tuple[str, int]] = [
    *_KEEPALIVE,
    *_LIMITS,
    # a second server on the same port is an error, not a silent half of the traffic
    ("grpc.so_reuseport", 0),
]


def open_channel(target: str) -> grpc.aio.Channel:
    """An insecure channel with our settings."""
    return grpc.aio.insecure_channel(target, options=CHANNEL_OPTIONS)


@dataclass(frozen=True, slots=True)
class Server:
    """A server with health and reflection. Every service is NOT_SERVING until told otherwise."""

    grpc_server: grpc.aio.Server
    health: HealthServicer
    port: int
    services: tuple[str, ...]

    async def set_serving(self, serving: bool) -> None:
        """Sets the health of all services and of the server as a whole (the empty name)."""
        from grpc_health.v1 import health_pb2

        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in ("", *self.services):
            await self.health.set(name, status)

    async def stop(self, grace: float) -> None:
        """Refuses new calls, lets running ones end for `grace` seconds, then cuts them."""
        await self.health.enter_graceful_shutdown()  # from here on set_serving changes nothing
        await self.grpc_server.stop(grace)


async def start_server(
    address: str, add: Sequence[Callable[[grpc.aio.Server], None]], services: Sequence[str]
) -> Server:
    """Starts a server on `host:port` (port 0: any free one).

    add: each registers one servicer with the server that it is called with. services: their full names.
    Raises OSError when the address cannot be bound.
    """
    from grpc_health.v1 import health, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    server = grpc.aio.server(options=SERVER_OPTIONS)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for register in add:
        register(server)
    reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from error
    running = Server(server, servicer, port, tuple(services))
    await running.set_serving(False)
    await server.start()
    return running


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
