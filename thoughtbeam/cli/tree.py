"""`thoughtbeam tree`: the searches that the service keeps, what one of them looks like, and its end."""

from __future__ import annotations

import argparse
import itertools

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.cli.words import how_cancelled
from thoughtbeam.client import Client
from thoughtbeam.errors import NotFoundError

_ID_LENGTH = 36
_SEARCHED = 1000
_DRAWN = 100


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("tree", help="list searches, draw or cancel one", description=__doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list searches, newest first", epilog=exits.SUMMARY)
    listing.set_defaults(run=list_trees)
    listing.add_argument("-n", "--limit", metavar="N", type=int, default=20, help="how many (default: 20)")

    show = actions.add_parser("show", help="draw a search", epilog=exits.SUMMARY)
    show.set_defaults(run=show_tree)
    show.add_argument(
        "tree",
        metavar="ID",
        type=tree_id,
        nargs="?",
        help="of the search, or how it begins (default: the newest one)",
    )
    show.add_argument(
        "--all",
        action="store_true",
        help=f"draw all nodes; otherwise, of more than {_DRAWN}, the {_DRAWN} that matter most: "
        "the path to the answer, then finished traces by score, then the rest",
    )

    cancel = actions.add_parser(
        "cancel",
        help="cancel a search",
        description="Cancels a search. One that runs ends within moments; one that has ended stays as it is.",
        epilog=exits.SUMMARY,
    )
    cancel.set_defaults(run=cancel_tree)
    cancel.add_argument("tree", metavar="ID", type=tree_id, help="of the search, or how it begins")
    for action in (listing, show, cancel):
        add_json(action)
        add_endpoint(action)


def list_trees(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.tree_list import tree_lines

    with open_client(args) as client:
        trees = list(itertools.islice(client.trees(), max(args.limit, 0)))
    if args.json:
        print(document(trees))
        return exits.OK
    if not trees:
        print("no searches are kept")
        return exits.OK
    console = terminal.output()
    for line in tree_lines(trees, console.width):
        console.print(line, no_wrap=True)
    return exits.OK


def show_tree(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.tree_drawing import draw_tree

    with open_client(args) as client:
        tree = client.tree(_find(client, args.tree))
    if args.json:
        print(document(tree))
    else:
        terminal.output().print(draw_tree(tree, None if args.all else _DRAWN), crop=False)
    return exits.OK


def cancel_tree(args: argparse.Namespace) -> int:
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        tree = client.cancel(_find(client, args.tree))
    print(document(tree) if args.json else f"{how_cancelled(tree.state)}: `thoughtbeam tree show {tree.id}`")
    return exits.OK


def tree_id(text: str) -> str:
    """An argument that names a search."""
    if not text.strip():
        raise argparse.ArgumentTypeError("an empty text names no search")
    return text.strip()


def _find(client: Client, wanted: str | None) -> str:
    """The full id; of an id that begins so, if there is only one; None: of the newest search."""
    if wanted is not None and len(wanted) >= _ID_LENGTH:
        return wanted
    recent = itertools.islice(client.trees(page_size=_SEARCHED), _SEARCHED)
    found = [t.id for t in recent if wanted is None or t.id.startswith(wanted)]
    if not found and wanted is None:
        raise NotFoundError("no searches are kept", reason="TREE_NOT_FOUND")
    if len(found) != 1 and wanted is not None:
        how_many = f"{len(found) or 'none'} of the last {_SEARCHED} searches begin with {wanted!r}"
        raise NotFoundError(how_many, reason="TREE_NOT_FOUND")
    return found[0]
