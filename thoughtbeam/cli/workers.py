"""`thoughtbeam workers`: the decoder workers that the service has heard of lately."""

from __future__ import annotations

import argparse

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client

_COLUMNS = (
    *("worker", "state", "model", "searches", "free slots", "waiting", "KV use"),
    *("context", "capacity", "scorer"),
)
_WORDS = 3  # columns on the left that are no numbers


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "workers", help="list the decoder workers", description=__doc__, epilog=exits.SUMMARY
    )
    parser.set_defaults(run=run)
    add_json(parser)
    add_endpoint(parser)


def run(args: argparse.Namespace) -> int:
    from rich.table import Table
    from rich.text import Text

    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        workers = client.workers()
    if args.json:
        print(document(workers))
        return exits.OK
    if not workers:
        print("no decoder worker is connected")
        return exits.OK
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(_COLUMNS):
        words = index < _WORDS or name == "scorer"
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    for worker in workers:
        cells = (
            *(worker.id, worker.state, worker.model, f"{worker.trees:,}"),
            *(f"{worker.free_slots:,} of {worker.slots:,}", f"{worker.waiting_traces:,}"),
            *(f"{worker.kv_use:.0%}", f"{worker.max_context:,}", f"{worker.max_capacity:,}", worker.scorer),
        )
        table.add_row(*(Text(terminal.printable(cell)) for cell in cells))
    terminal.output().print(table)
    return exits.OK
