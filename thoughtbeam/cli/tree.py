"""`thoughtbeam tree`: the searches that the service keeps, and what one of them looks like."""

from __future__ import annotations

import argparse
import itertools

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.client import Client
from thoughtbeam.errors import NotFoundError
from thoughtbeam.results import Tree

_ID_LENGTH = 36
_SEARCHED = 1000
_DRAWN = 100


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("tree", help="list searches, draw one", description=__doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="list searches, newest first", epilog=exits.SUMMARY)
    listing.set_defaults(run=list_trees)
    listing.add_argument("-n", "--limit", metavar="N", type=int, default=20, help="how many (default: 20)")

    show = actions.add_parser("show", help="draw a search", epilog=exits.SUMMARY)
    show.set_defaults(run=show_tree)
    show.add_argument(
        "tree", metavar="ID", nargs="?", help="of the search, or how it begins (default: the newest one)"
    )
    show.add_argument(
        "--all", action="store_true", help=f"draw all nodes, not only the {_DRAWN} that matter most"
    )
    for action in (listing, show):
        add_json(action)
        add_endpoint(action)


def list_trees(args: argparse.Namespace) -> int:
    from rich.table import Table

    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        trees = list(itertools.islice(client.trees(), max(args.limit, 0)))
    if args.json:
        print(document(trees))
        return exits.OK
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("tree", "created", "state", "policy", "nodes", "tokens", "answer", "question"):
        table.add_column(column, no_wrap=True, justify="right" if column in ("nodes", "tokens") else "left")
    for tree in trees:
        table.add_row(
            tree.id,
            tree.created.astimezone().strftime("%d %b %H:%M:%S") if tree.created else "",
            tree.state,
            tree.policy,
            str(tree.counts.nodes),
            f"{tree.usage.generated:,}",
            terminal.one_line((tree.result and tree.result.text) or "", 20),
            terminal.one_line(tree.question, 40),
        )
    terminal.output().print(table if trees else "no searches are kept", soft_wrap=True)
    return exits.OK


def show_tree(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.tree_drawing import draw_tree

    with open_client(args) as client:
        tree = _find(client, args.tree)
    if args.json:
        print(document(tree))
    else:
        terminal.output().print(draw_tree(tree, None if args.all else _DRAWN), crop=False)
    return exits.OK


def _find(client: Client, wanted: str | None) -> Tree:
    """The tree with this id; with an id that begins so, if there is only one; None: the newest."""
    if wanted is not None and len(wanted) >= _ID_LENGTH:
        return client.tree(wanted)
    recent = itertools.islice(client.trees(page_size=_SEARCHED), _SEARCHED)
    found = [t.id for t in recent if wanted is None or t.id.startswith(wanted)]
    if wanted is None and found:
        return client.tree(found[0])
    if len(found) != 1:
        how_many = f"{len(found)} of the last {_SEARCHED} searches begin with {wanted!r}"
        raise NotFoundError(how_many if wanted else "no searches are kept", reason="TREE_NOT_FOUND")
    return client.tree(found[0])
