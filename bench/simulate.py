"""`python -m bench.simulate`: all policies on a simulated model, in virtual time.

Requests arrive at random (Poisson) at a multiple of what self_consistency can serve, the same ones for every
policy, and the same table comes out for the same seed. Searches, slots, Scheduler View, policies and votes
are the worker's own; the engine, the traces and their scores are drawn (bench/simulation/world.py). Written
to bench/results/simulate.{json,md}. A policy that did nothing where its definition acts is marked; such a row
is no result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from statistics import fmean

from bench.report import markdown, quantile, save, wilson
from bench.simulation.scales import MEASURED, SCALES, Row, Scale, simulate
from decoder_worker.policies import POLICIES

HEADER = [
    "load",
    "policy",
    "right, 95 % interval",
    "generated tokens per request",
    "unique tokens per trace",
    "latency P50 / P90 / P97 / P99, s",
    "queueing P50 / P97, s",
    "completed traces/s",
    "branches / prunings / stops / evictions per request",
    "preemptions per request",
]
# what a policy has to have done
ACTS: Mapping[str, Callable[[Row], bool]] = {
    "gambit": lambda row: total(row, "branches") > 0 and total(row, "pruned") > 0,
    "sart": lambda row: total(row, "pruned") > 0,
    "sart_no_prune": lambda row: total(row, "stopped") > 0,
    "step": lambda row: total(row, "pruned") > 0,
    "deepconf": lambda row: total(row, "pruned") + total(row, "stopped") > 0,
    "slim_sc": lambda row: total(row, "pruned") > 0,
    "rebase": lambda row: total(row, "branches") > 0 and total(row, "pruned") > 0,
}


def total(row: Row, name: str) -> float:
    """The sum of a field over the requests."""
    return float(sum(getattr(run, name) for run in row.runs))


def summary(row: Row) -> dict[str, object]:
    """The numbers of a row."""
    count = len(row.runs)
    right = sum(run.right for run in row.runs)
    latency, queued = ([getattr(run, name) for run in row.runs] for name in ("latency", "queued"))
    traces = total(row, "roots") + total(row, "branches")
    actions = ("branches", "pruned", "stopped", "evictions", "recomputed")
    return {
        "policy": row.policy,
        "load": row.load,
        "requests": count,
        "right": right,
        "accuracy": right / count,
        "interval": wilson(right, count),
        "generated": total(row, "generated") / count,
        "unique": total(row, "generated") / traces,
        "latency": {f"p{q}": quantile(latency, q / 100) for q in (50, 90, 97, 99)},
        "latency_mean": fmean(latency),
        "queued": {f"p{q}": quantile(queued, q / 100) for q in (50, 97)},
        "traces_per_second": total(row, "finished") / row.seconds,
        **{name: total(row, name) / count for name in actions},
        "preemptions": row.preemptions / count,
        "acted": row.policy not in ACTS or ACTS[row.policy](row),
    }


def line(row: Row) -> list[str]:
    """The table's row."""
    found, count = summary(row), len(row.runs)
    low, high = wilson(sum(run.right for run in row.runs), count)

    def numbers(values: object, digits: int = 1) -> str:
        assert isinstance(values, dict)
        return " / ".join(f"{value:.{digits}f}" for value in values.values())

    acted = numbers({name: found[name] for name in ("branches", "pruned", "stopped", "evictions")})
    return [
        f"{row.load:.2f}",
        row.policy,
        f"{found['right']}/{count} = {found['accuracy']:.3f} [{low:.3f}, {high:.3f}]",
        f"{total(row, 'generated') / count / 1000:.2f} k",
        f"{found['unique']:.0f}",
        numbers(found["latency"]),
        numbers(found["queued"]),
        f"{found['traces_per_second']:.2f}",
        acted if found["acted"] else f"{acted} (did not act: no result)",
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
    options.add_argument("--requests", type=int, help="of every policy, at every load")
    options.add_argument(
        "--loads", type=float, nargs="+", default=[0.7], help=f"as multiples of {MEASURED}'s capacity"
    )
    options.add_argument("--slots", type=int, help="of the engine")
    options.add_argument("--kv-blocks", type=int, help="of the engine")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--name", help="of the result files")
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

    began = time.perf_counter()
    capacity = scale.capacity()
    print(f"{MEASURED} can serve {capacity:.4f} requests/s", flush=True)
    rows = []
    for load in args.loads:
        for policy in scale.policies:
            rows.append(simulate(scale, policy, load, load * capacity, requests))
            print(" | ".join(line(rows[-1])), flush=True)
    table = markdown(HEADER, [line(row) for row in rows])
    result = {"seed": args.seed, "capacity": capacity, **settings(scale), "rows": [summary(r) for r in rows]}
    path = save(name, result, table)
    print(f"\n{table}\n\nwritten to {path} after {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
