"""Where the service is, and how to connect to it."""

from __future__ import annotations

import os

from thoughtbeam.runtime.rpc import CHANNEL_OPTIONS

DEFAULT_ENDPOINT = "localhost:50551"
ENDPOINT_VARIABLE = "THOUGHTBEAM_ENDPOINT"


def resolve_endpoint(given: str | None) -> str:
    """`host:port` of the service: as given, else THOUGHTBEAM_ENDPOINT, else localhost:50551."""
    return given or os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT


def channel_options(target: str) -> list[tuple[str, int]]:
    """gRPC channel options for a target."""
    options = [*CHANNEL_OPTIONS]
    host = target.rpartition(":")[0].strip("[]")
    if host in ("localhost", "::1") or host.startswith("127."):
        # a proxy from the environment cannot reach this machine's loopback
        options.append(("grpc.enable_http_proxy", 0))
    return options
