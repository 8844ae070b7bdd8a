"""`thoughtbeam load`: how busy the service is."""

from __future__ import annotations

import argparse

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.cli.words import counted
from thoughtbeam.results import Load


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "load", help="say how busy the service is", description=__doc__, epilog=exits.SUMMARY
    )
    parser.set_defaults(run=run)
    add_json(parser)
    add_endpoint(parser)


def run(args: argparse.Namespace) -> int:
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        load = client.load()
    print(document(load) if args.json else in_words(load))
    return exits.OK


def in_words(load: Load) -> str:
    """Three lines: the queue, the searches, the workers."""
    wait = "" if load.oldest_wait is None else f", the first for {load.oldest_wait:.1f} s"
    most = counted(load.max_queued_trees, "search", "searches")
    lines = [
        f"queue    {load.queued_trees:,} of at most {most}{wait}",
        f"running  {counted(load.running_trees, 'search', 'searches')}",
        f"workers  {load.workers:,}",
    ]
    if load.workers:
        lines[-1] += (
            f": {load.free_slots:,} of {counted(load.slots, 'slot')} free, "
            f"{counted(load.waiting_traces, 'trace')} waiting, KV use {load.kv_use:.0%} at most"
        )
    return "\n".join(lines)
