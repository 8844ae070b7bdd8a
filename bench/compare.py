"""`python -m bench.compare`: the policies on the same questions, model, scorer and judge, end to end.

Starts the embedded default (or uses --endpoint), asks every question of the splits once per policy, and
writes a table to bench/results/compare.{json,md}: accuracy with its 95 % (Wilson) interval, the share of
finished traces that are right, generated tokens, wall time, and what the policy did. A policy that did
nothing where its definition acts is marked; such a row is no result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.report import markdown, save, wilson
from bench.service import service
from thoughtbeam import AsyncClient
from thoughtbeam.results import NodeState

Value = int | float | str  # of a policy parameter
QUESTIONS = Path(__file__).parent / "questions"


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a split and its right answer."""

    id: str
    text: str
    answer: int


@dataclass(frozen=True, slots=True)
class Run:
    """One question under one policy. seconds: from its acceptance to its end, queueing left out."""

    question: str
    answer: str | None
    right: bool
    finished: int
    finished_right: int
    generated: int
    recomputed: int
    seconds: float
    branches: int
    pruned: int
    cancelled: int
    rounds: int
    evictions: int


@dataclass(frozen=True, slots=True)
class Row:
    """One policy on one split. wall: seconds for all its questions."""

    split: str
    policy: str
    parameters: Mapping[str, object]
    wall: float
    runs: Sequence[Run]


def load(split: str, limit: int) -> list[Question]:
    """The fixed test list of a split."""
    lines = (QUESTIONS / f"test_{split}.jsonl").read_text().splitlines()
    items = [json.loads(line) for line in lines[:limit]]
    return [Question(item["id"], item["question"], int(item["answer"])) for item in items]


def parameters(policy: str, size: int, overrides: Mapping[str, Value]) -> dict[str, Value]:
    """N or C of a policy, by its paper's name for it, and the overrides for gambit."""
    if policy == "vanilla":
        return {}
    if policy == "gambit":
        return {"C": size, "N_max": size, **overrides}
    return {"N": size}


async def ask(client: AsyncClient, question: Question, policy: str, values: Mapping[str, Value]) -> Run:
    """One search, and its tree."""
    result = await client.solve(
        question.text, policy=policy, parameters=dict(values), answer_mode="integer", deadline=1800.0
    )
    tree = await client.tree(result.tree_id)
    finished = [node for node in tree.nodes if node.state is NodeState.FINISHED]
    return Run(
        question=question.id,
        answer=result.text,
        right=same(result.text, question.answer),
        finished=len(finished),
        finished_right=sum(same(node.answer, question.answer) for node in finished),
        generated=result.usage.generated,
        recomputed=result.usage.recomputed,
        seconds=result.elapsed - result.queued,
        branches=result.counts.branches,
        pruned=result.counts.pruned,
        cancelled=result.counts.cancelled,
        rounds=result.counts.rounds,
        evictions=result.counts.evictions,
    )


def same(answer: str | None, right: int) -> bool:
    """Whether an answer is that whole number."""
    try:
        return answer is not None and int(answer) == right
    except ValueError:
        return False


async def measure(
    client: AsyncClient, split: str, questions: Sequence[Question], policy: str, values: Mapping[str, Value]
) -> Row:
    """All questions at once: the service queues what it has no room for."""
    began = time.perf_counter()
    runs = await asyncio.gather(*(ask(client, question, policy, values) for question in questions))
    return Row(split, policy, values, time.perf_counter() - began, runs)


def line(row: Row) -> list[str]:
    """The table's row."""
    runs = row.runs
    right = sum(run.right for run in runs)
    low, high = wilson(right, len(runs))
    finished = sum(run.finished for run in runs)

    def mean(name: str) -> float:
        return float(sum(getattr(run, name) for run in runs)) / len(runs)

    acted = f"{mean('branches'):.1f} / {mean('pruned'):.1f} / {mean('rounds'):.1f}"
    if row.policy == "gambit" and not (mean("branches") and mean("pruned")):
        acted += " (did not act: no result)"
    return [
        row.split,
        row.policy,
        f"{right}/{len(runs)} = {right / len(runs):.3f} [{low:.3f}, {high:.3f}]",
        f"{sum(run.finished_right for run in runs) / finished:.3f}" if finished else "–",
        f"{mean('generated') / 1000:.2f} k",
        f"{row.wall:.0f} s",
        acted,
    ]


HEADER = [
    "split",
    "policy",
    "right, 95 % interval",
    "finished traces right",
    "generated tokens per question",
    "wall time",
    "branches / prunings / tournaments per question",
]


async def compare(endpoint: str, args: argparse.Namespace) -> list[Row]:
    """Every policy on every split."""
    overrides = {name: json.loads(value) for name, value in (item.split("=", 1) for item in args.set)}
    rows: list[Row] = []
    async with AsyncClient(endpoint) as client:
        for split in args.splits:
            questions = load(split, args.questions)
            for policy in args.policies:
                values = parameters(policy, args.size, overrides)
                rows.append(await measure(client, split, questions, policy, values))
                print(" | ".join(line(rows[-1])), flush=True)
    return rows


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--endpoint", default="", help="a running service (default: starts the embedded one)"
    )
    options.add_argument("--splits", nargs="+", default=["medium", "hard", "hard2"])
    options.add_argument(
        "--policies", nargs="+", default=["vanilla", "self_consistency", "best_of_n", "gambit"]
    )
    options.add_argument("--questions", type=int, default=60, help="per split")
    options.add_argument("--size", type=int, default=24, help="C = N")
    options.add_argument("--slots", type=int, default=64)
    options.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="overrides for gambit")
    options.add_argument("--name", default="compare", help="of the result files")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.splits, args.questions, args.size, args.name = ["medium"], 2, 8, "compare-quick"
    with service(args.endpoint, slots=args.slots) as endpoint:
        rows = asyncio.run(compare(endpoint, args))
    table = markdown(HEADER, [line(row) for row in rows])
    path = save(args.name, {"rows": [asdict(row) for row in rows]}, table)
    print(f"\n{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
