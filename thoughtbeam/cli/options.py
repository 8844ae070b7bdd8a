"""Arguments that several commands share, and what they are turned into."""

from __future__ import annotations

import argparse
import math
import os
import sys

from thoughtbeam._retry import Retry, RetryConfig
from thoughtbeam.client import Client
from thoughtbeam.errors import UnavailableError

RECONNECT_VARIABLE = "THOUGHTBEAM_RECONNECT_SECONDS"
# somebody waits at a terminal: if nothing listens at all, they want to know soon
_FIRST_CONTACT = 2.0
_CALL_TIMEOUT = 60.0


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    """Where the service is, and how long to try to reach it."""
    parser.add_argument(
        "--endpoint",
        metavar="HOST:PORT",
        help="of the service (default: THOUGHTBEAM_ENDPOINT, else localhost:50551)",
    )
    parser.add_argument(
        "--reconnect",
        metavar="SECONDS",
        type=seconds,
        default=os.environ.get(RECONNECT_VARIABLE) or None,
        help=f"how long to try while the service does not answer (default: {RECONNECT_VARIABLE}, else "
        f"{_FIRST_CONTACT:g} before its first answer, {RetryConfig().outage:g} after it)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def open_client(args: argparse.Namespace) -> Client:
    """A client that says on stderr when it loses the service."""
    given = args.reconnect
    config = RetryConfig(first_contact=_FIRST_CONTACT)
    if given is not None:
        config = RetryConfig(first_contact=given, outage=given)
    return Client(
        args.endpoint, call_timeout=max(_CALL_TIMEOUT, given or 0.0), retry=config, on_retry=_tell_of_outage
    )


def _tell_of_outage(retry: Retry) -> None:
    if retry.number > 1 or (not retry.contacted and retry.window <= _FIRST_CONTACT):
        return
    print(
        f"thoughtbeam: {_what_happened(retry)}; reconnecting, for up to {retry.window:g} s", file=sys.stderr
    )


def _what_happened(retry: Retry) -> str:
    match retry.error:
        case UnavailableError(reason="UNKNOWN"):
            return "the connection is lost" if retry.contacted else "nothing answers"
        case error:
            return error.message


def seconds(text: str) -> float:
    """A time from 0 on."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def parameter(text: str) -> tuple[str, bool | int | float | str | None]:
    """`NAME=VALUE` of a policy's parameter; the value is a number, true, false or null if it reads so."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    if value.lower() == "null":
        return name, None
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    return name, value
