"""`thoughtbeam tree text`, `result` and `watch`: what a search wrote, answered and did."""

from __future__ import annotations

import argparse

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import open_client
from thoughtbeam.cli.tree_ids import find


def add_text(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=show_text)
    parser.add_argument("node", metavar="NODE", type=int, help="number of the trace, see `tree show`")
    parser.add_argument("--own", action="store_true", help="leave out what it inherited from its parent")


def add_result(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=show_result)
    parser.add_argument("--wait", action="store_true", help="wait for its end, if it has not ended")


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=watch)
    parser.add_argument(
        "--after",
        metavar="EVENT",
        default="",
        help="id of an event: show only what came later (default: everything)",
    )


def show_text(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.trace_view import trace_view

    with open_client(args) as client:
        trace = client.trace(find(client, args.tree), args.node, own_only=args.own)
    if args.json:
        print(document(trace))
    else:
        # a line of the text stays a line
        terminal.output().print(trace_view(trace), soft_wrap=True)
    return exits.OK


def show_result(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.result_view import result_view

    with open_client(args) as client:
        tree_id = find(client, args.tree)
        result = client.wait(tree_id) if args.wait else client.result(tree_id)
    if args.json:
        print(document(result))
    else:
        terminal.output().print(result_view(result))
    return exits.OK if result.answer else exits.NO_ANSWER


def watch(args: argparse.Namespace) -> int:
    from thoughtbeam.cli.event_line import event_line, event_object

    show = event_object if args.json else event_line
    with open_client(args) as client:
        for event in client.watch(find(client, args.tree), args.after):
            print(show(event), flush=True)
    return exits.OK
