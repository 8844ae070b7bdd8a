"""`thoughtbeam solve`: asks a question, shows the search while it runs, prints the answer."""

from __future__ import annotations

import argparse
import sys
import uuid
from collections.abc import Sequence
from typing import get_args

from thoughtbeam import _requests
from thoughtbeam.cli import exits
from thoughtbeam.cli.options import add_endpoint, add_json, open_client, parameter
from thoughtbeam.cli.words import how_cancelled
from thoughtbeam.client import Client
from thoughtbeam.errors import ApiError
from thoughtbeam.results import Node


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "solve",
        help="ask a question",
        description="Asks one question and prints its answer. Ctrl-C cancels the search.",
        epilog=exits.SUMMARY,
    )
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("question", metavar="QUESTION", help="the question, or - to read it from stdin")
    add("--system", metavar="TEXT", help="a system message to go before it")
    add("--policy", default="gambit", help="search method (default: gambit); see `thoughtbeam policies`")
    add("--profile", help="parameter defaults: paper or tiny (default: the worker's)")
    add(
        *("-p", "--parameter"),
        metavar="NAME=VALUE",
        type=parameter,
        action="append",
        default=[],
        help="a parameter of the policy, as often as needed, for example: -p C=12 -p K=3",
    )
    add("--model", help="name of the model (default: whatever is served)")
    add(
        "--answer-mode",
        choices=get_args(_requests.AnswerMode),
        default="boxed",
        help="how a trace's answer is read: the last \\boxed{...} (default), the letter of a choice, an "
        "integer (097 equals 97), the last match of --answer-regex, or none: the text after the thinking, "
        "as it is",
    )
    add("--answer-regex", metavar="PATTERN", help="for --answer-mode regex")
    add("--temperature", metavar="T", type=float, help="of sampling, 0 to 2 (default: the model's own)")
    add(
        "--top-p",
        metavar="P",
        type=float,
        help="sample from the likeliest tokens that make up this probability, above 0 to 1 "
        "(default: the model's own)",
    )
    add(
        "--top-k",
        metavar="K",
        type=int,
        help="sample from this many of the likeliest tokens (default: the model's own)",
    )
    add(
        "--deadline",
        metavar="SECONDS",
        type=float,
        help="end the search then, with the best answer so far (default: the gateway's, 600 s)",
    )
    add("--max-tokens", metavar="N", type=int, help="the same after N tokens over the whole tree")
    add("--max-trace-tokens", metavar="N", type=int, help="longest trace")
    add(
        "--seed",
        metavar="N",
        type=int,
        default=0,
        help="seeds the policy's own random choices, if it has any; sampled tokens are not reproducible "
        "(default: 0)",
    )
    add("--request-id", metavar="UUID", help="the same id and question again is the same search")
    add("--timeout", metavar="SECONDS", type=float, help="stop waiting then; the search goes on")
    add("--quiet", action="store_true", help="no progress on the terminal")
    add_json(parser)
    add_endpoint(parser)


def run(args: argparse.Namespace) -> int:
    from thoughtbeam.cli import terminal
    from thoughtbeam.cli.document import document
    from thoughtbeam.cli.progress import shown
    from thoughtbeam.cli.result_view import result_view

    tree_id = args.request_id or str(uuid.uuid4())
    with open_client(args) as client:
        try:
            with shown(args.policy, sys.stderr.isatty() and not args.quiet) as on_event:
                result = client.solve(
                    _prompt(args),
                    policy=args.policy,
                    timeout=args.timeout,
                    on_event=on_event,
                    profile=args.profile,
                    parameters=dict(args.parameter),
                    model=args.model,
                    answer_mode=args.answer_mode,
                    answer_regex=args.answer_regex,
                    temperature=args.temperature,
                    top_p=args.top_p,
                    top_k=args.top_k,
                    deadline=args.deadline,
                    max_tokens=args.max_tokens,
                    max_trace_tokens=args.max_trace_tokens,
                    seed=args.seed,
                    request_id=tree_id,
                )
            # without an answer, what became of the traces tells why
            nodes = () if result.answer or args.json else nodes_of(client, tree_id)
        except KeyboardInterrupt:
            print(cancelled(client, tree_id), file=sys.stderr)
            return exits.INTERRUPTED
    if args.json:
        print(document(result))
    else:
        terminal.output().print(result_view(result, nodes))
    return exits.OK if result.answer else exits.NO_ANSWER


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


def _prompt(args: argparse.Namespace) -> _requests.Prompt:
    question = sys.stdin.read().strip() if args.question == "-" else args.question
    if args.system is None:
        return str(question)
    return [{"role": "system", "content": args.system}, {"role": "user", "content": question}]
