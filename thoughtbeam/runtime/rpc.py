"""gRPC servers and channels with the settings that all our processes share."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

if TYPE_CHECKING:
    from grpc_health.v1._async import HealthServicer

# 256 boundary rows of a model with hidden size 8,192 in float32 are 8 MiB; with them may come histories: 300
# thoughts of each of 256 traces, 256 float16 values each, are 38 MiB.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# Of all tensors in one message; the rest of it are tens of bytes per trace.
MAX_TENSOR_BYTES = MAX_MESSAGE_BYTES - 4 * 1024 * 1024

# Of all headers of a call, and of all its trailers. One limit instead of gRPC's two (8 and 16 KiB, in between
# some calls fail and some do not): a call is refused always or never.
MAX_METADATA_BYTES = 16 * 1024

# That wait to be taken up. By default gRPC cancels some above 1,000 and all above 3,000, and clients do not
# repeat them: a gateway that comes back would lose those whom it served.
MAX_PENDING_CALLS = 100_000

_LIMITS = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
]
# A peer that was away is found again within seconds, however long it was (gRPC's own limit is two minutes).
_RECONNECT = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]
_SERVER = [
    # a second server on the same port is an error, not a silent half of the traffic
    ("grpc.so_reuseport", 0),
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
]


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Pings on a connection that carries nothing, in seconds. A stream may be idle for half an hour (a search
    that waits in the queue): pings keep middleboxes from dropping it, and find a peer that is gone.

    interval: between two. timeout: for the answer to one, after which the connection is closed. tolerated:
    shortest interval between the pings of a client that a server does not punish with GOAWAY; below
    `interval`.
    """

    interval: float = 60.0
    timeout: float = 20.0
    tolerated: float = 10.0

    @property
    def options(self) -> list[tuple[str, int]]:
        """As gRPC channel arguments, for servers and channels."""
        return [
            ("grpc.keepalive_time_ms", round(self.interval * 1000)),
            ("grpc.keepalive_timeout_ms", round(self.timeout * 1000)),
            # gRPC has pings of its own, and while one is out it sends no other; it would wait a minute for it
            ("grpc.http2.ping_timeout_ms", round(self.timeout * 1000)),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", round(self.interval * 500)),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", round(self.tolerated * 1000)),
        ]


KEEPALIVE = Keepalive()


def channel_options(keepalive: Keepalive = KEEPALIVE) -> list[tuple[str, int]]:
    """The options of a channel to one of our servers."""
    return [*keepalive.options, *_LIMITS, *_RECONNECT]


def server_options(
    keepalive: Keepalive = KEEPALIVE, max_request_bytes: int = MAX_MESSAGE_BYTES
) -> list[tuple[str, int]]:
    """The options of a server."""
    limits = {**dict(_LIMITS), "grpc.max_receive_message_length": max_request_bytes}
    return [*keepalive.options, *limits.items(), *_SERVER]


CHANNEL_OPTIONS: Sequence[tuple[str, int]] = channel_options()


def open_channel(target: str, keepalive: Keepalive = KEEPALIVE) -> grpc.aio.Channel:
    """An insecure channel with our settings."""
    return grpc.aio.insecure_channel(target, options=channel_options(keepalive))


class ListenError(OSError):
    """An address that a server cannot listen on."""


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


def _obstacle(address: str) -> str:
    """Why `host:port` cannot be bound, in the system's words, which gRPC keeps to its own log; "" when it can
    be."""
    host, _, port = address.rpartition(":")
    try:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM
        ):
            with socket.socket(family, kind, protocol) as probe:
                # as gRPC does: what a closed connection has left behind is no obstacle
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
    except OSError as error:
        return error.strerror or str(error)
    return ""


async def start_server(
    address: str,
    add: Sequence[Callable[[grpc.aio.Server], None]],
    services: Sequence[str],
    keepalive: Keepalive = KEEPALIVE,
    max_request_bytes: int = MAX_MESSAGE_BYTES,
) -> Server:
    """Starts a server on `host:port` (port 0: any free one).

    add: each registers one servicer with the server that it is called with. services: their full names.
    max_request_bytes: of one message; a larger one ends its call with RESOURCE_EXHAUSTED.
    Raises ListenError when the address cannot be bound.
    """
    from grpc_health.v1 import health, health_pb2_grpc
    from grpc_reflection.v1alpha import reflection

    server = grpc.aio.server(options=server_options(keepalive, max_request_bytes))
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    for register in add:
        register(server)
    reflection.enable_server_reflection((*services, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ListenError(f"cannot listen on {address}: {_obstacle(address) or error}") from error
    running = Server(server, servicer, port, tuple(services))
    await running.set_serving(False)
    await server.start()
    return running
