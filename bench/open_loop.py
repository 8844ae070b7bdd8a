"""`python -m bench.open_loop`: latency and accuracy while questions keep arriving, whatever is under way.

First it measures how many questions a second self_consistency can end. Then, for each load, questions arrive
at random (Poisson) at that multiple of it for two minutes, the same ones at the same moments for every
policy, each with N = 8. Latency from end to end, of it queueing and inference, and accuracy, with intervals,
go to bench/results/open_loop.{json,md}; those of latencies take the questions for independent, which they are
not while they wait for each other. `python -m bench.simulate --scale paper` does the same in virtual
time, with traces as long as the papers'.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, takewhile
from random import Random

from bench import report, rows
from bench.arrivals import MEASURED, moments, steady_rate
from bench.asking import Question, Run, Value, ask, load, parameters
from bench.service import service
from decoder_worker.policies import POLICIES
from thoughtbeam import AsyncClient
from thoughtbeam.runtime.arguments import whole

SPLITS = ("easy", "medium", "hard", "hard2")
SLOTS = 64


@dataclass(frozen=True, slots=True)
class Arrival:
    """A question, and when it is asked, in seconds from the beginning."""

    question: Question
    at: float


def mixed() -> list[Question]:
    """All test questions, the splits in turn."""
    return [
        question for turn in zip(*(load(split, 60) for split in SPLITS), strict=True) for question in turn
    ]


def arrivals(questions: Sequence[Question], rate: float, seconds: float, seed: int) -> list[Arrival]:
    """So many questions a second; after the last question the first is asked again."""
    times = takewhile(lambda at: at < seconds, moments(rate, Random(seed)))
    return [Arrival(question, at) for question, at in zip(cycle(questions), times, strict=False)]


async def capacity(client: AsyncClient, questions: Sequence[Question], values: Mapping[str, Value]) -> float:
    """Questions per second that self_consistency ends while more of them wait than can run."""
    ended: list[float] = []

    async def one(question: Question) -> None:
        await ask(client, question, MEASURED, values)
        ended.append(time.monotonic())

    await asyncio.gather(*map(one, questions))
    return steady_rate(ended)


async def measure(
    client: AsyncClient, arriving: Sequence[Arrival], policy: str, values: Mapping[str, Value]
) -> tuple[Sequence[Run], float]:
    """The runs, and the seconds from the first arrival to the last end."""
    began = time.monotonic()

    async def one(arrival: Arrival) -> Run:
        await asyncio.sleep(began + arrival.at - time.monotonic())
        return await ask(client, arrival.question, policy, values)

    runs = await asyncio.gather(*map(one, arriving))
    return runs, time.monotonic() - began - arriving[0].at


HEADER = [
    "load",
    "policy",
    "questions",
    rows.ACCURACY,
    *rows.TIMES,
    "generated tokens per question",
    "completed traces/s",
    rows.ACTIONS,
]


def line(row: Mapping[str, object]) -> list[str]:
    """The table's row."""
    return [
        f"{row['load']:.1f}",
        f"`{row['policy']}`",
        str(row["requests"]),
        rows.accuracy(row),
        *rows.times_with_intervals(row),
        rows.thousands(row["generated"]),
        f"{row['traces_per_second']:.1f}",
        rows.actions(row),
    ]


async def open_loop(endpoint: str, args: argparse.Namespace) -> tuple[float, list[dict[str, object]]]:
    """The capacity, and a row for every load and policy."""
    questions, found = mixed(), list[dict[str, object]]()
    async with AsyncClient(endpoint) as client:
        most = await capacity(client, questions[: args.warm_up], parameters(MEASURED, args.size, {}))
        print(f"{MEASURED} can serve {most:.2f} questions/s", flush=True)
        for factor in args.loads:
            arriving = arrivals(questions, factor * most, args.seconds, args.seed)
            if not arriving:
                raise SystemExit(f"--seconds: no question arrives in {args.seconds:g} s at this rate")
            for policy in args.policies:
                own: dict[str, Value] = {"M": args.size // 2} if policy.startswith("sart") else {}
                values = parameters(policy, args.size, own)
                runs, seconds = await measure(client, arriving, policy, values)
                row = {"load": factor, "parameters": values, **rows.summary(policy, runs, seconds)}
                found.append(row)
                print(" | ".join(line(row)), flush=True)
    return most, found


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = options.add_argument
    policies = [MEASURED, "vanilla", "sart", "sart_no_prune", "rebase"]
    add("--endpoint", default="", help="a running service (default: starts the embedded one)")
    add("--policies", nargs="+", choices=list(POLICIES), default=policies, metavar="POLICY")
    add("--loads", type=float, nargs="+", default=[0.7, 1.2], help=f"as multiples of {MEASURED}'s capacity")
    add("--seconds", type=float, default=120.0, help="that questions arrive, per load and policy")
    add("--size", type=int, default=8, help="N; M is half of it")
    add("--warm-up", type=whole(2), default=120, help="questions that measure the capacity")
    add("--seed", type=int, default=0, help="of the arrivals")
    add("--name", default="open_loop", help="of the result files")
    add("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.loads, args.seconds, args.warm_up, args.name = [0.7], 5.0, 12, "open_loop-quick"

    with service(args.endpoint, slots=SLOTS) as endpoint:
        most, found = asyncio.run(open_loop(endpoint, args))
    table = report.markdown(HEADER, [line(row) for row in found])
    result = {"slots": SLOTS, "capacity": most, "seed": args.seed, "rows": found}
    path = report.save(args.name, result, table)
    print(f"\n{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
