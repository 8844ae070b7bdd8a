"""`thoughtbeam tree`: the searches that the service keeps, what one of them looks like, and its end."""

from __future__ import annotations

import argparse
import itertools

from thoughtbeam.cli import exits, tree_reading
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.cli.tree_ids import find, tree_id
from thoughtbeam.cli.words import how_cancelled

_DRAWN = 100


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "tree", help="list searches; draw, read, watch or end one", description=__doc__
    )
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

    result = actions.add_parser(
        "result",
        help="print the answer and the votes of a search",
        description="Prints how a search ended, however large its result is.",
        epilog=exits.SUMMARY,
    )
    text = actions.add_parser(
        "text",
        help="print what a trace wrote, with the score of each thought",
        description="Prints the text of one trace, and over each thought its score.",
        epilog=exits.SUMMARY,
    )
    watch = actions.add_parser(
        "watch",
        help="print the events of a search as they come, a line each",
        description="Prints the events of a search as they come, a line each, up to its last; with --json a "
        "JSON object a line.",
        epilog=exits.SUMMARY,
    )
    cancel = actions.add_parser(
        "cancel",
        help="cancel a search",
        description="Cancels a search. One that runs ends within moments; one that has ended stays as it is.",
        epilog=exits.SUMMARY,
    )
    cancel.set_defaults(run=cancel_tree)
    delete = actions.add_parser(
        "delete",
        help="delete a search",
        description="Deletes a search that has ended, and everything of it.",
        epilog=exits.SUMMARY,
    )
    delete.set_defaults(run=delete_tree)
    delete.add_argument("--force", action="store_true", help="cancel it first, if it has not ended")
    for action in (result, text, watch, cancel, delete):
        action.add_argument("tree", metavar="ID", type=tree_id, help="of the search, or how it begins")
    tree_reading.add_result(result)
    tree_reading.add_text(text)
    tree_reading.add_watch(watch)
    for action in (listing, show, result, text, watch, cancel):
        add_json(action)
    for action in (listing, show, result, text, watch, cancel, delete):
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
        tree = client.tree(find(client, args.tree))
    if args.json:
        print(document(tree))
    else:
        terminal.output().print(draw_tree(tree, None if args.all else _DRAWN), crop=False)
    return exits.OK


def cancel_tree(args: argparse.Namespace) -> int:
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        tree = client.cancel(find(client, args.tree))
    print(document(tree) if args.json else f"{how_cancelled(tree.state)}: `thoughtbeam tree show {tree.id}`")
    return exits.OK


def delete_tree(args: argparse.Namespace) -> int:
    with open_client(args) as client:
        found = find(client, args.tree)
        client.delete(found, force=args.force)
    print(f"deleted {found}")
    return exits.OK
