"""`thoughtbeam serve --local`: the whole service on this machine, until Ctrl-C."""

from __future__ import annotations

import argparse
import os
import sys

from thoughtbeam import local
from thoughtbeam.cli import exits
from thoughtbeam.cli.options import seconds, whole_number
from thoughtbeam.models import SCORER_FILE
from thoughtbeam.supervision.signals import StopRequestedError, StopSignals
from thoughtbeam.supervision.state import StateDirectory

_WATCH_SECONDS = 1.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve",
        help="run the service on this machine",
        description="Starts the store, a prm worker, the gateway and a decoder worker on loopback and "
        "watches them; Ctrl-C stops them all. When one of them dies, all are stopped and the command fails: "
        "a service manager or compose, which run the single programs, can restart them one by one. "
        "Data and logs go to $THOUGHTBEAM_HOME, else ./.thoughtbeam.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--local",
        action="store_true",
        required=True,
        help="everything on this machine; for a cluster run the programs themselves: "
        "python -m gateway, decoder_worker, prm_worker",
    )
    add = parser.add_argument
    add(
        "--port",
        type=whole_number(0, 65535),
        default=local.DEFAULT_PORT,
        help="of the gateway (default: %(default)s)",
    )
    add("--model", metavar="DIR", help="Hugging Face directory or name (default: the bundled tiny reasoner)")
    add(
        "--scorer",
        metavar="FILE",
        help=f"scorer weights (default: {SCORER_FILE} beside the model, if any)",
    )
    add(
        "--process-reward",
        metavar="DIR",
        help="instead of --scorer: Hugging Face directory or name of a model that scores texts",
    )
    add("--boundary-rule", metavar="RULE", help="where thoughts end; what the scorer was trained for")
    add(
        "--profile",
        choices=["paper", "tiny"],
        help="parameter defaults (default: tiny for the bundled model)",
    )
    add("--slots", metavar="B", type=int, help="traces that the engine decodes at once")
    add("--max-context", metavar="TOKENS", type=int, help="longest sequence, prompt included")
    add("--kv-blocks", metavar="BLOCKS", type=int, help="size of the KV cache (default: what memory allows)")
    add(
        "--startup-timeout",
        metavar="SECONDS",
        type=seconds,
        default=local.STARTUP_TIMEOUT,
        help="for each program to become ready (default: %(default)g)",
    )


def run(args: argparse.Namespace) -> int:
    config = local.LocalConfig(
        port=args.port,
        model=args.model,
        scorer=args.scorer,
        process_reward=args.process_reward,
        boundary_rule=args.boundary_rule,
        profile=args.profile,
        slots=args.slots,
        max_context=args.max_context,
        kv_blocks=args.kv_blocks,
        startup_timeout=args.startup_timeout,
    )
    with StopSignals() as signals:
        try:
            with local.running(config, StateDirectory(), signals, report) as (ready, supervisor):
                report(f"Thoughtbeam is ready at {ready.endpoint}; the tree store is {ready.redis_url}")
                how = "Ctrl-C here or `thoughtbeam stop`" if _in_foreground() else "`thoughtbeam stop`"
                report(f"Logs are in {ready.logs}; {how} ends everything")
                while True:
                    signals.wait(_WATCH_SECONDS)
                    supervisor.check()
        except StopRequestedError:
            # that is how it is meant to end
            report("everything has been stopped")
            return exits.OK


def _in_foreground() -> bool:
    """Whether a Ctrl-C on the terminal reaches this process."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def report(line: str) -> None:
    """A line of progress; on stderr, so that stdout is for results."""
    print(line, file=sys.stderr, flush=True)
