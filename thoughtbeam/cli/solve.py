"""`thoughtbeam solve`: asks a question, shows the search while it runs, prints the answer."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.cli.search_options import add_search, options_of, prompt_of
from thoughtbeam.cli.words import how_cancelled
from thoughtbeam.client import Client
from thoughtbeam.errors import ApiError, UnavailableError
from thoughtbeam.results import Node, Result, TreeEvent


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "solve",
        help="ask a question",
        description="Asks one question and prints its answer. Ctrl-C cancels the search.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    add_search(parser)
    parser.add_argument(
        "--timeout", metavar="SECONDS", type=float, help="stop waiting then; the search goes on"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on the terminal")
    add_json(parser)
    add_endpoint(parser)


def run(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.result_view import result_view

    args.request_id = args.request_id or str(uuid.uuid4())
    with open_client(args) as client:
        try:
            result = _solved(client, args)
            # without an answer, what became of the traces tells why
            nodes = () if result.answer or args.json else nodes_of(client, result.tree_id)
        except KeyboardInterrupt:
            print(cancelled(client, args.request_id), file=sys.stderr)
            return exits.INTERRUPTED
    if args.json:
        print(document(result))
    else:
        terminal.output().print(result_view(result, nodes))
    return exits.OK if result.answer else exits.NO_ANSWER


def _solved(client: Client, args: argparse.Namespace) -> Result:
    from thoughtbeam.cli.progress import shown

    accepted = False
    with shown(args.policy, sys.stderr.isatty() and not args.quiet) as show:

        def on_event(event: TreeEvent) -> None:
            nonlocal accepted
            accepted = True
            if show is not None:
                show(event)

        try:
            return client.solve(
                prompt_of(args),
                policy=args.policy,
                timeout=args.timeout,
                on_event=on_event,
                **options_of(args),
            )
        except UnavailableError:
            if accepted:
                hint = f"later `thoughtbeam tree result {args.request_id}` tells how it ended"
                print(f"thoughtbeam: the search may go on; {hint}", file=sys.stderr)
            raise


def cancelled(client: Client, tree_id: str) -> str:
    """Cancels a search that nobody waits for any more; says how that went."""
    try:
        tree = client.cancel(tree_id)
    except ApiError as error:
        return f"interrupted; the search could not be cancelled: {error}"
    return f"interrupted; {how_cancelled(tree.state)}: `thoughtbeam tree show {tree.id}`"


def nodes_of(client: Client, tree_id: str) -> Sequence[Node]:
    """The traces of a search that has ended; none if they cannot be had: its result is there all the same."""
    try:
        return client.tree(tree_id).nodes
    except ApiError:
        return ()
