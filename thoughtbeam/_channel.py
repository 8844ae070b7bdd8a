"""Where the service is, and how to connect to it."""

from __future__ import annotations

import os

from thoughtbeam.runtime.rpc import CHANNEL_OPTIONS

DEFAULT_ENDPOINT = "localhost:50551"
ENDPOINT_VARIABLE = "THOUGHTBEAM_ENDPOINT"

# What is tried again, when and for how long is decided in _retry.py alone: gRPC neither repeats a call itself
# nor takes a retry policy from a service config in DNS.
_NO_RETRIES = [("grpc.enable_retries", 0), ("grpc.service_config_disable_resolution", 1)]


def resolve_endpoint(given: str | None) -> str:
    """`host:port` of the service: as given, else THOUGHTBEAM_ENDPOINT, else localhost:50551."""
    return given or os.environ.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT


def channel_options(target: str) -> list[tuple[str, int]]:
    """gRPC channel options for a target."""
    options = [*CHANNEL_OPTIONS, *_NO_RETRIES]
    host = target.rpartition(":")[0].strip("[]")
    if host in ("localhost", "::1") or host.startswith("127."):
        # a proxy from the environment cannot reach this machine's loopback
        options.append(("grpc.enable_http_proxy", 0))
    return options
