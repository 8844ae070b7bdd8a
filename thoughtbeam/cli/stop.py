"""`thoughtbeam stop`: ends the services that run in this state directory."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import seconds
from thoughtbeam.supervision.state import HOME_VARIABLE, StateDirectory


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "stop",
        help="end what `serve --local` or `demo --keep` has left running",
        description="Ends the services of $THOUGHTBEAM_HOME, else ./.thoughtbeam, and waits for their end.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--timeout", metavar="SECONDS", type=seconds, default=60.0, help="default: 60")


def run(args: argparse.Namespace) -> int:
    state = StateDirectory()
    supervisor = state.holder()
    if supervisor is None:
        print(f"nothing runs in {state.path}; for services of another directory, name it in {HOME_VARIABLE}")
        return exits.OK
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGTERM)
    if not state.wait_released(args.timeout):
        print(f"process {supervisor} is still stopping after {args.timeout:g} s")
        return exits.FAILED
    print(f"stopped the services of {state.path}")
    return exits.OK
