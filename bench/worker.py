"""`python -m bench.worker`: what a decoder worker holds in memory, and how long its policies decide.

Memory: a real worker, with a real store and a real prm worker, on an engine whose outputs are made up and of
which nothing counts. Traces pass a boundary every 40 tokens and are scored. What Python's allocator has
handed out to our code is counted after a search has begun and after its traces have grown.
Decisions: each kind of decision of each policy, on trees of C traces with 20 scored thoughts each.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.paced_engine import Language, PacedEngine
from bench.policies import POLICIES, Decision, decisions
from bench.report import markdown, save
from bench.running_worker import RunningWorker, running_worker, store_and_scorer
from decoder_worker.garbage import calm_collector

SIZES = (16, 64, 256, 1024, 4096)
GAP = 40
_ROOT = Path(__file__).parents[1]
_NOT_COUNTED = ("bench",)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. per_trace: of a live trace that has just begun. per_token: of what a trace generates, its
    thoughts included. left: of everything, once the search has ended. by_file: of per_token."""

    traces: int
    tokens: int
    per_trace: float
    per_token: float
    left: int
    by_file: dict[str, float]


async def memory(redis_url: str, scorer: str, language: Language, traces: int, tokens: int) -> Memory:
    """Of one search with so many traces of so many tokens."""
    engine = PacedEngine(language, traces, GAP)
    tracemalloc.start()
    try:
        async with running_worker(engine, redis_url, scorer) as running:
            before = held()
            tree_id = await running.begin("best_of_n", {"N": traces})
            await running.filled(traces)
            await engine.run(1, 0.05)
            await written(running)
            begun = held()
            await engine.run(tokens // GAP, 0.05, burst=GAP)
            await engine.run(1, 0.05)  # brings the rows of the last boundaries
            await written(running)
            grown = held()
            running.worker.cancel(tree_id)
            await gone(running)
            left = held()
    finally:
        tracemalloc.stop()
    per_file = {name: (grown[name] - begun[name]) / traces / tokens for name in grown}
    return Memory(
        traces=traces,
        tokens=tokens,
        per_trace=round((begun.total() - before.total()) / traces),
        per_token=round((grown.total() - begun.total()) / traces / tokens, 2),
        left=left.total() - before.total(),
        by_file={name: round(size, 2) for name, size in per_file.items() if abs(size) >= 0.01},
    )


def held() -> Counter[str]:
    """Bytes that are allocated, by the file that asked for them; what the benchmark itself holds left out."""
    gc.collect()
    found: Counter[str] = Counter()
    for statistic in tracemalloc.take_snapshot().statistics("filename"):
        path = Path(statistic.traceback[0].filename)
        name = str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name
        if not name.startswith(_NOT_COUNTED):
            found[name] += statistic.size
    return found


async def written(running: RunningWorker) -> None:
    """Waits until every score has come and everything is in the store."""
    for tree in list(running.worker._trees.values()):
        if tree.search is not None:
            await tree.search.scores_settled()
        while tree._log._dirty.is_set():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)


async def gone(running: RunningWorker) -> None:
    """Waits until the worker runs nothing."""
    while running.worker._trees:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.2)


def memory_table(memories: Sequence[Memory]) -> str:
    """Bytes by the number of traces."""
    names = sorted(
        {name for m in memories for name in m.by_file}, key=lambda n: -memories[-1].by_file.get(n, 0)
    )
    rows = [
        ["bytes per live trace, just begun", *(f"{m.per_trace:,.0f}" for m in memories)],
        ["**bytes per generated token**", *(f"**{m.per_token:.2f}**" for m in memories)],
        *([f"… allocated in {name}", *(f"{m.by_file.get(name, 0):.2f}" for m in memories)] for name in names),
        ["bytes left after the search", *(f"{m.left:,}" for m in memories)],
    ]
    header = [f"traces of {memories[0].tokens:,} tokens", *(f"{m.traces:,}" for m in memories)]
    return markdown(header, rows)


def decision_table(found: Sequence[Decision], sizes: Sequence[int]) -> str:
    """p50 / p99 by C."""
    by_place = {(d.policy, d.what, d.traces): d for d in found}
    rows = []
    for policy, what in dict.fromkeys((d.policy, d.what) for d in found):
        own = [by_place[policy, what, size] for size in sizes]
        rows.append([policy, what, *(f"{d.p50:,.0f} / {d.p99:,.0f}" for d in own)])
    return markdown(["policy", "µs, p50 / p99; C", *(f"{size:,}" for size in sizes)], rows)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--traces", type=int, nargs="+", default=[64, 512], help="of the searches held in memory"
    )
    options.add_argument("--tokens", type=int, default=4000, help="of each trace held in memory")
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="C, for the decisions")
    options.add_argument("--times", type=int, default=200, help="of each decision")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.traces, args.tokens, args.sizes, args.times = [16], 400, [16, 32], 10
    calm_collector()  # as the program does
    found = [d for name in POLICIES for size in args.sizes for d in decisions(name, size, args.times)]
    language = Language.load()
    with store_and_scorer() as (redis_url, scorer):
        memories = [
            asyncio.run(memory(redis_url, scorer, language, traces, args.tokens)) for traces in args.traces
        ]
    table = memory_table(memories) + "\n\n" + decision_table(found, args.sizes)
    result = {"memory": [asdict(m) for m in memories], "decisions": [asdict(d) for d in found]}
    path = save("worker-quick" if args.quick else "worker", result, table)
    print(f"{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
