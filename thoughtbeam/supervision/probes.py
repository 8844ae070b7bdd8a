"""Asking a service on this machine whether it serves. Each answers within about a second."""

from __future__ import annotations

import socket

from thoughtbeam.runtime.probe import SERVING, health

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
    # cheaper than a channel, and most answers while something starts are this one
    return _listens(port) and health(f"127.0.0.1:{port}", timeout=_PATIENCE) == SERVING


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
