"""Asking a service on this machine whether it serves. Each answers within about a second."""

from __future__ import annotations

import socket
from typing import Any

import grpc

_PATIENCE = 1.0


def redis_answers(port: int) -> bool:
    """Whether a Redis or Valkey on loopback answers PING (it does not while it loads its data)."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection:
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
    except OSError:
        return False


def grpc_serves(port: int) -> bool:
    """Whether a gRPC server on loopback has the health SERVING."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    target = f"127.0.0.1:{port}"
    # cheaper than a channel, and most answers while something starts are this one
    if not _listens(port):
        return False
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its published types lack the methods
        try:
            reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE)
        except grpc.RpcError:
            return False
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing listens on at this moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def port_is_free(port: int) -> bool:
    """Whether this process could listen on a loopback port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True
