"""`python -m bench.step`: what Thoughtbeam itself costs per engine step, part by part.

A real decoder worker, with a real store and a real prm worker, on an engine whose outputs are made up: 512
live traces, each with a token a step, of which one in a hundred is a boundary. Steps come 20 ms apart, as
those of a real model do. Before that the traces are grown to 8,000 tokens, so that trees, sequences and
stored nodes have a size that they have in use. The times are those of the worker's one thread, in which the
front end of vLLM runs as well; what happens inside the engine's processes is measured by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from dataclasses import asdict, dataclass, field

from bench.clock import Clock
from bench.paced_engine import CALLS, MADE_UP, Language, PacedEngine
from bench.report import markdown, quantile, save
from bench.running_worker import RunningWorker, running_worker, store_and_scorer
from bench.step_hooks import hook_costs
from decoder_worker import search, worker
from decoder_worker.engine.base import StepBatch
from decoder_worker.engine.detokenizer import Detokenizer
from decoder_worker.policies.gambit import Gambit
from decoder_worker.scheduler_view import SchedulerView
from decoder_worker.scoring.client import ScoringClient
from decoder_worker.scoring.prm_link import PrmLink
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_run import TreeRun
from tree_store import writes
from tree_store.store import TreeStore

SLOTS, GAP = 512, 100
_ON_OUTPUTS = "search: outputs into the Tree View"
_SCORES = "scores: into the Tree View"
_SLOTS = "slots: granted and given up"
_NOTES = "tree log: changes noted"
_BOUNDARIES = "boundaries: thoughts and checkpoints"
_ACTIONS = "actions: prune and branch"
_STORE_CALL = "store: the call (redis-py)"
_SCORER = "scorer client: rows out, scores in"

FUNCTIONS: dict[tuple[object, str], str] = {
    (search.Search, "on_outputs"): _ON_OUTPUTS,
    (search.Search, "_pass_boundary"): _BOUNDARIES,
    (search.Search, "_save"): _BOUNDARIES,
    (search.Search, "_finish_trace"): "finished traces: answers",
    (search.Search, "_act"): _ACTIONS,
    (search.Search, "on_scores"): _SCORES,
    (Detokenizer, "feed"): "boundaries: text of thoughts",
    (Gambit, "step"): "policy: decisions",
    (SchedulerView, "pressure"): "Scheduler View: pressure and ranks",
    (SchedulerView, "priorities"): "Scheduler View: pressure and ranks",
    (ScoringClient, "submit"): _SCORER,
    (worker.Worker, "_settle"): _SLOTS,
    (worker.Worker, "enqueue"): _SLOTS,
    (worker.Worker, "withdraw"): _SLOTS,
    (TreeLog, "moved"): _NOTES,
    (TreeLog, "checkpoint"): _NOTES,
    (TreeLog, "thought"): _NOTES,
    (TreeLog, "round"): _NOTES,
    (TreeLog, "fields"): _NOTES,
    (TreeLog, "policy_state"): _NOTES,
    (TreeLog, "_take"): "tree log: notes into a batch",
    (writes, "encode_batch"): "store: batch into arguments",
}
COROUTINES: dict[tuple[object, str], str] = {
    (worker.Worker, "_pump"): "pump: outputs to their searches",
    (worker.Worker, "_command_engine"): CALLS,
    (worker.Worker, "_renew_leases"): "leases and presence",
    (PrmLink, "run"): _SCORER,
    (TreeLog, "run"): "tree log: waiting and sending",
    (TreeRun, "run"): "tree log: waiting and sending",
    (TreeStore, "commit"): _STORE_CALL,
}


@dataclass(frozen=True, slots=True)
class Profile:
    """One run. parts: microseconds per step. total, threads: of the worker's thread and of its others
    (gRPC), by the CPU clock, without the engine and without measuring. blocks: microseconds that the thread
    was busy with one step's outputs. per_step: how often things happened."""

    trees: int
    steps: int
    total: float
    threads: float
    measuring: float
    parts: dict[str, float]
    blocks: dict[str, float]
    per_step: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is measured. traces: live at once. tokens: of a trace before. pace: seconds between two steps."""

    traces: int
    tokens: int
    steps: int
    pace: float


async def profile(redis_url: str, scorer: str, language: Language, setting: Setting, trees: int) -> Profile:
    """Grows so many trees, which share the traces, then measures."""
    traces, tokens, steps, pace = setting.traces, setting.tokens, setting.steps, setting.pace
    clock = Clock()
    engine = PacedEngine(language, traces, GAP, kv_use=0.85, clock=clock)
    share = traces // trees
    parameters = {"C": share, "N_max": 10 * share, "K": min(16, share // 2), "warmup": tokens // 2}
    with clock.watching(FUNCTIONS, COROUTINES):
        async with running_worker(engine, redis_url, scorer) as running:
            for _ in range(trees):
                await running.begin("gambit", parameters)
            await running.filled(traces)
            await engine.run(tokens // GAP, 0.02, burst=GAP)
            await settled(running)
            await engine.run(GAP, pace)  # boundaries come at moments of their own from here on
            before = progress(running)
            blocks = watch_blocks(running)
            gc.collect()
            clock.reset()
            busy, everything = time.thread_time_ns(), time.process_time_ns()
            for _ in range(steps // 100):
                engine.end(1)
                await engine.run(100, pace)
            busy, everything = time.thread_time_ns() - busy, time.process_time_ns() - everything
            seconds, calls, measuring = clock.seconds(), dict(clock.calls), clock.overhead
            happened = {name: count - before[name] for name, count in progress(running).items()}
    steps = steps // 100 * 100
    made_up = seconds.pop(MADE_UP)

    def per_step(value: float) -> float:
        return round(value / steps * 1e6, 1)

    total = per_step(busy / 1e9 - made_up - measuring)
    parts = {name: per_step(value) for name, value in sorted(seconds.items(), key=lambda item: -item[1])}
    parts["event loop, sockets, timers"] = round(total - sum(parts.values()), 1)
    return Profile(
        trees=trees,
        steps=steps,
        total=total,
        threads=per_step((everything - busy) / 1e9),
        measuring=per_step(measuring),
        parts=parts,
        blocks={f"p{q}": round(quantile(blocks, q / 100) * 1e6) for q in (50, 99, 100)},
        per_step={
            **{name: round(count / steps, 3) for name, count in happened.items()},
            "writes": round(calls[_STORE_CALL] / steps, 3),
        },
    )


def searches(running: RunningWorker) -> list[search.Search]:
    """What its trees run."""
    return [tree.search for tree in running.worker._trees.values() if tree.search is not None]


async def settled(running: RunningWorker) -> None:
    """Growing passes more boundaries at once than scores come back for, tournaments are held for and batches
    are written for: waits for scores and writes, and drops the count of thoughts that would be made up for
    with one tournament after the other."""
    for one in searches(running):
        await one.scores_settled()
        one._state = one.policy.initial(0)
    for tree in running.worker._trees.values():
        while len(tree._log._notes) > 1:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)


def progress(running: RunningWorker) -> dict[str, int]:
    """What its trees have had so far."""
    found = searches(running)
    return {
        "boundaries scored": sum(one.view.thoughts_scored for one in found),
        "tournaments": sum(one.rounds for one in found),
        "branches": sum(len(one.view) for one in found),
    }


def watch_blocks(running: RunningWorker) -> list[float]:
    """Gathers the seconds that every step's outputs keep the event loop from anything else."""
    found: list[float] = []
    deliver = running.worker._deliver
    relieve = running.worker._relieve
    began = 0.0

    def first(batch: StepBatch) -> None:
        nonlocal began
        began = time.perf_counter()
        deliver(batch)

    def last() -> None:
        relieve()
        found.append(time.perf_counter() - began)

    running.worker._deliver = first  # type: ignore[method-assign]
    running.worker._relieve = last  # type: ignore[method-assign]
    return found


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--traces", type=int, default=SLOTS, help="live at once")
    options.add_argument("--trees", type=int, nargs="+", default=[1, 8], help="that share them; one run each")
    options.add_argument("--tokens", type=int, default=8000, help="of a trace before it is measured")
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--pace", type=float, default=0.02, help="seconds between two steps")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.traces, args.trees, args.tokens, args.steps = 64, [1], 400, 200
    setting = Setting(args.traces, args.tokens, args.steps, args.pace)
    language = Language.load()
    with store_and_scorer() as (redis_url, scorer):
        profiles = [asyncio.run(profile(redis_url, scorer, language, setting, trees)) for trees in args.trees]
    hooks = hook_costs(args.traces, quick=args.quick)
    table = tables(args.traces, profiles, hooks)
    result = {"traces": args.traces, "tokens": args.tokens, "pace": args.pace, "hooks_us": hooks}
    path = save(
        "step-quick" if args.quick else "step", {**result, "profiles": [asdict(p) for p in profiles]}, table
    )
    print(f"{table}\n\nwritten to {path}")


def tables(traces: int, profiles: list[Profile], hooks: dict[str, float]) -> str:
    """Parts by µs per step, one column per run, and what the hooks cost."""
    header = ["µs per step", *(f"{p.trees} × {traces // p.trees} traces" for p in profiles)]
    names = list(profiles[0].parts)
    rows = [[name, *(f"{p.parts.get(name, 0.0):,.0f}" for p in profiles)] for name in names]
    rows.append(["**all of the thread**", *(f"**{p.total:,.0f}**" for p in profiles)])
    rows.append(["per token, µs", *(f"{p.total / traces:.2f}" for p in profiles)])
    rows.append(["other threads (gRPC)", *(f"{p.threads:,.0f}" for p in profiles)])
    rows.append(["measuring, taken off", *(f"{p.measuring:,.0f}" for p in profiles)])
    rows += [
        [f"one step's outputs, {name}", *(f"{p.blocks[name]:,}" for p in profiles)]
        for name in profiles[0].blocks
    ]
    rows += [
        [f"{name} in a step", *(f"{p.per_step[name]:.2f}" for p in profiles)] for name in profiles[0].per_step
    ]
    inside = [[name, f"{value:,.0f}"] for name, value in hooks.items()]
    return markdown(header, rows) + "\n\n" + markdown(["inside the engine", "µs per step"], inside)


if __name__ == "__main__":
    main()
