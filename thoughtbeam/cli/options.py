"""Arguments that several commands share, and what they are turned into."""

from __future__ import annotations

import argparse

from thoughtbeam._retry import RetryConfig
from thoughtbeam.client import Client


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--endpoint",
        metavar="HOST:PORT",
        help="of the service (default: THOUGHTBEAM_ENDPOINT, else localhost:50551)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")


def open_client(args: argparse.Namespace) -> Client:
    """A client for somebody who waits at a terminal: if nothing listens at all, it says so soon."""
    return Client(args.endpoint, retry=RetryConfig(first_contact=2.0))


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
