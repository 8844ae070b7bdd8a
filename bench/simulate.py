"""`python -m bench.simulate`: all policies on a simulated model, in virtual time.

Requests arrive at random (Poisson) at a multiple of what self_consistency can serve, the same ones for every
policy, and the same table comes out for the same seed. Searches, slots, Scheduler View, policies and votes
are the worker's own; the engine, the traces and their scores are drawn (bench/simulation/world.py). Written
to bench/results/simulate.{json,md}. A policy that did nothing where its definition acts is marked; such a row
is no result.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace

from bench import rows
from bench.arrivals import MEASURED
from bench.report import markdown, save
from bench.simulation.scales import SCALES, Row, Scale, simulate
from decoder_worker.policies import POLICIES
from thoughtbeam.runtime.arguments import whole

HEADER = [
    "load",
    "policy",
    rows.ACCURACY,
    "generated tokens per request",
    "unique tokens per trace",
    *rows.TIMES,
    "completed traces/s",
    rows.ACTIONS,
    "preemptions per request",
]


def summary(row: Row) -> dict[str, object]:
    """The numbers of a row."""
    found = rows.summary(row.policy, row.runs, row.seconds)
    return {**found, "load": row.load, "preemptions": row.preemptions / len(row.runs)}


def line(found: Mapping[str, object]) -> list[str]:
    """The table's row."""
    return [
        f"{found['load']:.2f}",
        str(found["policy"]),
        rows.accuracy(found),
        rows.thousands(found["generated"]),
        f"{found['unique']:.0f}",
        *rows.times_with_intervals(found),
        f"{found['traces_per_second']:.2f}",
        rows.actions(found),
        f"{found['preemptions']:.1f}",
    ]


def settings(scale: Scale) -> dict[str, object]:
    """What the numbers hang on."""
    engine = {f.name: getattr(scale.engine, f.name) for f in fields(scale.engine)}
    engine |= {"step_time": asdict(scale.engine.step_time), "confidence": "that of the world"}
    return {
        "world": asdict(scale.world),
        "engine": engine,
        "profile": scale.profile,
        "trace_limit": scale.trace_limit,
        "overrides": {name: dict(values) for name, values in scale.overrides.items()},
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--scale", choices=list(SCALES), default="tiny")
    options.add_argument("--policies", nargs="+", choices=list(POLICIES), metavar="POLICY")
    options.add_argument("--requests", type=whole(2), help="of every policy, at every load")
    options.add_argument(
        "--loads",
        type=float,
        nargs="+",
        help=f"as multiples of {MEASURED}'s capacity (default: 0.7; with --scale paper also 1.2)",
    )
    options.add_argument("--slots", type=int, help="of the engine")
    options.add_argument("--kv-blocks", type=int, help="of the engine")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--name", help="of the result files")
    options.add_argument(
        "--gate",
        type=float,
        metavar="TIMES",
        help=f"fail unless, at the highest load, {MEASURED}'s P97 latency is so many times that of sart",
    )
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()

    scale = SCALES[args.scale](args.seed)
    asked = {"slots": args.slots, "kv_blocks": args.kv_blocks}
    engine = replace(scale.engine, **{name: value for name, value in asked.items() if value is not None})
    requests = args.requests or scale.requests
    if args.quick:
        requests = min(requests, 6)
    scale = replace(scale, engine=engine, requests=requests, policies=tuple(args.policies or scale.policies))
    name = args.name or "simulate" + "-paper" * (args.scale == "paper") + "-quick" * args.quick

    if args.gate is not None and not {MEASURED, "sart"} <= {*scale.policies}:
        options.error(f"--gate compares {MEASURED} with sart: --policies needs both")

    began = time.perf_counter()
    capacity = scale.capacity()
    print(f"{MEASURED} can serve {capacity:.4f} requests/s", flush=True)
    found = []
    for load in args.loads or scale.loads:
        for policy in scale.policies:
            found.append(summary(simulate(scale, policy, load, load * capacity, requests)))
            print(" | ".join(line(found[-1])), flush=True)
    table = markdown(HEADER, [line(row) for row in found])
    result = {"seed": args.seed, "capacity": capacity, **settings(scale), "rows": found}
    path = save(name, result, table)
    print(f"\n{table}\n\nwritten to {path} after {time.perf_counter() - began:.0f} s")
    if args.gate is not None:
        times = p97_ratio(found)
        print(
            f"P97 latency of {MEASURED} is {times:.1f} times that of sart; at least {args.gate:g} are wanted"
        )
        sys.exit(times < args.gate)


def p97_ratio(found: Sequence[Mapping[str, object]]) -> float:
    """How many times as long as sart's is self_consistency's P97 latency, at the highest load."""
    highest = max(float(str(row["load"])) for row in found)
    p97 = {row["policy"]: row["latency"] for row in found if row["load"] == highest}
    slow, fast = p97[MEASURED], p97["sart"]
    assert isinstance(slow, Mapping)
    assert isinstance(fast, Mapping)
    return float(slow["p97"]) / float(fast["p97"])


if __name__ == "__main__":
    main()
