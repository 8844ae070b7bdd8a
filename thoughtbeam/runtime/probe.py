"""Whether a gRPC server serves: `python -m thoughtbeam.runtime.probe HOST:PORT [SERVICE]`, for health checks.

Exits with 0 when its health is SERVING, else with 1 and one line. Needs nothing but grpcio.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import grpc

SERVING = "SERVING"

_METHOD = "/grpc.health.v1.Health/Check"
# HealthCheckResponse as it is on the wire: field 1, a varint; the default is left out.
_STATUSES = {b"": "UNKNOWN", b"\x08\x01": SERVING, b"\x08\x02": "NOT_SERVING", b"\x08\x03": "SERVICE_UNKNOWN"}


def health(target: str, service: str = "", timeout: float = 5.0) -> str:
    """The health of a service of a server, or why it cannot be known, in one line.

    service: full name; empty for the server as a whole. timeout: seconds.
    """
    # a proxy would speak for itself
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(target, options=options) as channel:
        check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD)
        try:
            return _STATUSES.get(check(_request(service), timeout=timeout), "UNKNOWN")
        except grpc.RpcError as error:
            code, details = error.code().name, error.details() or ""
            return f"{code}: {' '.join(details.split())}"


def _request(service: str) -> bytes:
    name = service.encode()
    if len(name) > 127:
        raise ValueError(f"the name of a service has at most 127 bytes; this one has {len(name)}")
    return b"\x0a" + bytes([len(name)]) + name if name else b""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m thoughtbeam.runtime.probe",
        description="Exits with 0 when the health of a gRPC server is SERVING, else with 1.",
    )
    parser.add_argument("target", metavar="HOST:PORT")
    parser.add_argument("service", metavar="SERVICE", nargs="?", default="", help="default: the whole server")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=5.0, help="default: %(default)g")
    asked = parser.parse_args(arguments)
    try:
        found = health(asked.target, asked.service, asked.timeout)
    except ValueError as error:
        found = str(error)
    if found == SERVING:
        return 0
    print(f"{asked.target} {asked.service or 'server'}: {found}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
