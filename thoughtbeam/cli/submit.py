"""`thoughtbeam submit`: starts a search and does not wait for it."""

from __future__ import annotations

import argparse
import sys

from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client
from thoughtbeam.cli.search_options import add_search, options_of, prompt_of


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "submit",
        help="start a search without waiting for it",
        description="Starts one search and prints its id; see `thoughtbeam tree watch` and `tree result`.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    add_search(parser)
    add_json(parser)
    add_endpoint(parser)


def run(args: argparse.Namespace) -> int:
    from thoughtbeam.cli.document import document

    with open_client(args) as client:
        tree = client.submit(prompt_of(args), policy=args.policy, **options_of(args))
    print(document(tree) if args.json else tree.id)
    if sys.stderr.isatty() and not args.json:
        print(f"{tree.state}; `thoughtbeam tree result --wait {tree.id}` waits for it", file=sys.stderr)
    return exits.OK
