"""The arguments of a search, which every command that starts one has."""

from __future__ import annotations

import argparse
import sys
from typing import get_args

from thoughtbeam._requests import AnswerMode, Prompt, SubmitOptions
from thoughtbeam.cli.options import parameter


def add_search(parser: argparse.ArgumentParser) -> None:
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
        "--scorer",
        metavar="KIND",
        help="what scores thoughts: confidence, for the model's own, which needs no training (default: the "
        "scorer that the worker was given)",
    )
    add(
        "--answer-mode",
        choices=get_args(AnswerMode),
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


def prompt_of(args: argparse.Namespace) -> Prompt:
    question = sys.stdin.read().strip() if args.question == "-" else args.question
    if args.system is None:
        return str(question)
    return [{"role": "system", "content": args.system}, {"role": "user", "content": question}]


def options_of(args: argparse.Namespace) -> SubmitOptions:
    return SubmitOptions(
        profile=args.profile,
        parameters=dict(args.parameter),
        model=args.model,
        scorer=args.scorer,
        answer_mode=args.answer_mode,
        answer_regex=args.answer_regex,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        deadline=args.deadline,
        max_tokens=args.max_tokens,
        max_trace_tokens=args.max_trace_tokens,
        seed=args.seed,
        request_id=args.request_id,
    )
