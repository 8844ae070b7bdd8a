"""`python -m bench.store`: what trees take in Redis, and how long each transition and each read takes.

Trees with C live traces, C from 16 to 4,096, on the embedded Valkey over loopback, its append-only file on.
Memory: a trace has 300 thoughts of 40 tokens, fewer where C is large, so that it fits. Times: of a whole
call as the caller sees it (encoded, sent, run, answered), and the CPU time that the server's one thread spent
on it, in which nobody else is served. An ending, for which every time needs a tree of its own, is tried less
often.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from bench.report import markdown, quantile, save
from bench.store_trees import THOUGHT_TOKENS, StoredTree
from tree_store.embedded import EmbeddedServer
from tree_store.keys import TreeKeys
from tree_store.model import Failure, NodeState
from tree_store.store import TreeStore

SIZES = (16, 64, 256, 1024, 4096)
THOUGHTS, MOST_THOUGHTS = 300, 150_000  # of a trace, of a tree
K = 16
_PER_TOKEN = ("tokens", "text", "thoughts")  # kinds of keys
_PER_NODE = ("node", "state", "events", "meta", "policy")
_INTERNAL = 13  # google.rpc.Code
_KEYS_PER_READ = 2000
_SETTLE_SECONDS = 3.0

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Memory:
    """One grown tree. total: bytes that the server's memory has grown by; by_kind: MEMORY USAGE of its keys;
    per_round: of a tournament's record."""

    traces: int
    thoughts: int
    tokens: int
    events: int
    total: int
    by_kind: dict[str, int] = field(default_factory=dict)
    per_round: float = 0.0

    @property
    def per_token(self) -> float:
        """Bytes of what grows with the tokens: ids, text, thoughts."""
        return sum(self.by_kind[kind] for kind in _PER_TOKEN) / self.tokens

    @property
    def per_node(self) -> float:
        """Bytes of everything else."""
        return sum(self.by_kind[kind] for kind in _PER_NODE) / self.traces


@dataclass(frozen=True, slots=True)
class Timed:
    """Microseconds of one call at one C. server: CPU time of the server's one thread, mean."""

    what: str
    traces: int
    times: int
    p50: int
    p99: int
    server: int


class Measured:
    """Times calls on one server."""

    def __init__(self, store: TreeStore) -> None:
        self.store = store
        self.redis: Any = store._redis
        self.found: list[Timed] = []

    async def times(self, what: str, traces: int, calls: Sequence[Call]) -> None:
        """Makes the calls one after the other."""
        seconds = []
        busy = await self._busy()
        for call in calls:
            began = time.perf_counter()
            await call()
            seconds.append(time.perf_counter() - began)
        busy = await self._busy() - busy
        p50, p99 = (round(quantile(seconds, q) * 1e6) for q in (0.5, 0.99))
        self.found.append(Timed(what, traces, len(calls), p50, p99, round(busy / len(calls) * 1e6)))

    async def memory(self, tree: StoredTree, before: int) -> Memory:
        """What a tree takes. before: the server's memory when it was not there."""
        total = await self.used() - before
        keys = TreeKeys(tree.tree_id)
        by_kind: dict[str, list[str]] = {
            "meta": [keys.meta],
            "policy": [keys.policy],
            "events": [keys.events],
            "state": [keys.state(state) for state in NodeState],
        }
        for kind in ("node", *_PER_TOKEN):
            by_kind[kind] = [getattr(keys, kind)(number) for number in range(1, tree.nodes + 1)]
        sizes = {kind: await self.bytes_of(names) for kind, names in by_kind.items()}
        events = await self.redis.xlen(keys.events)
        return Memory(tree.nodes, tree.thoughts, tree.tokens, events, total, sizes)

    async def used(self) -> int:
        """The server's memory, once its buffers for a burst of commands have gone."""
        await asyncio.sleep(_SETTLE_SECONDS)
        return int((await self.redis.info("memory"))["used_memory"])

    async def _busy(self) -> float:
        """Seconds of CPU that the thread which runs all commands has used."""
        info = await self.redis.info("cpu")
        return float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])

    async def bytes_of(self, keys: Sequence[str]) -> int:
        """What these keys take, their own overhead included."""
        total = 0
        for first in range(0, len(keys), _KEYS_PER_READ):
            async with self.redis.pipeline(transaction=False) as pipeline:
                for key in keys[first : first + _KEYS_PER_READ]:
                    pipeline.memory_usage(key, samples=0)
                total += sum(found or 0 for found in await pipeline.execute())
        return total


async def measure(measured: Measured, size: int, thoughts: int, times: int) -> Memory:
    """Everything at one C."""
    store = measured.store
    warm = StoredTree(store)  # has the server load the scripts
    await warm.grow(2 * K, 1)
    await warm.write(warm.exchange(K))
    await warm.finish()
    before = await measured.used()
    tree = StoredTree(store, seed=size)
    await tree.grow(size, thoughts)
    memory = await measured.memory(tree, before)
    await _queueing(measured, size, times)
    await _running(measured, tree, size, times)
    await _reads(measured, tree, size, times)
    rounds = await measured.bytes_of([TreeKeys(tree.tree_id).rounds])
    await _endings(measured, size, max(10, min(times, 4096 // size)))
    return replace(memory, per_round=rounds / times)


async def _queueing(measured: Measured, size: int, times: int) -> None:
    store = measured.store
    trees = [StoredTree(store) for _ in range(times)]
    await measured.times("create", size, [_call(store.create, tree.new) for tree in trees])
    await measured.times("enqueue", size, [_call(store.enqueue, tree.tree_id) for tree in trees])
    await measured.times("assign", size, [tree.assign for tree in trees])
    await measured.times("fail, no nodes", size, [_call(_fail, store, tree) for tree in trees])


async def _running(measured: Measured, tree: StoredTree, size: int, times: int) -> None:
    store = measured.store
    share, k = max(1, size // 100), min(K, size // 4)
    steps = [tree.step(tree.some(share)) for _ in range(times)]
    await measured.times("commit, 1 % of C at a boundary", size, [_call(tree.write, b) for b in steps])
    steps = [tree.step(tree.some(5)) for _ in range(times)]
    await measured.times("commit, 5 traces at a boundary", size, [_call(tree.write, b) for b in steps])
    rounds = [tree.exchange(k) for _ in range(times)]
    await measured.times(
        f"commit, a tournament (K = {K}, at most C/4)", size, [_call(tree.write, b) for b in rounds]
    )
    renew = [_call(store.renew, tree.tree_id, tree.epoch, 3600.0) for _ in range(times)]
    await measured.times("renew", size, renew)

    async def back() -> None:
        await store.requeue(tree.tree_id, tree.epoch)

    for _ in range(times):
        await measured.times("requeue", size, [back])
        await tree.assign()
    _merge(measured, "requeue", size)


async def _reads(measured: Measured, tree: StoredTree, size: int, times: int) -> None:
    store, tree_id = measured.store, tree.tree_id
    page = list(range(1, min(tree.nodes, 20) + 1))
    reads: dict[str, Call] = {
        "read: tree": _call(store.tree, tree_id),
        "read: a page of 200 nodes": lambda: store.nodes(tree_id, max(1, tree.nodes - 199), 200),
        "read: a page of 500 events": lambda: store.events(tree_id, count=500),
        "read: contents of 20 nodes": _call(store.contents, tree_id, page),
        "read: 50 of the list of trees": _call(store.list_trees, 50),
    }
    for what, read in reads.items():
        await measured.times(what, size, [read] * times)


async def _endings(measured: Measured, size: int, times: int) -> None:
    store = measured.store

    async def grown(count: int) -> list[StoredTree]:
        trees = [StoredTree(store) for _ in range(count)]
        for tree in trees:
            await tree.grow(size, 1)
        return trees

    trees = await grown(times)
    await measured.times("finish and retain, C nodes", size, [tree.finish for tree in trees])
    retained = [_call(store._retain, TreeKeys(tree.tree_id)) for tree in trees]
    await measured.times("of that, retain", size, retained)
    if hasattr(store, "delete"):
        await measured.times("delete, C nodes", size, [_call(store.delete, tree.tree_id) for tree in trees])
    trees = await grown(times)
    await measured.times("fail, C nodes", size, [_call(_fail, store, tree) for tree in trees])
    trees = await grown(times)
    for tree in trees:
        await store.requeue(tree.tree_id, tree.epoch)
    cancels = [_call(store.request_cancel, tree.tree_id) for tree in trees]
    await measured.times("cancel in the queue, C nodes", size, cancels)


async def _fail(store: TreeStore, tree: StoredTree) -> None:
    await store.fail(tree.tree_id, tree.epoch, Failure(_INTERNAL, "SEARCH_FAILED", "measured"))


def _call(function: Callable[..., Awaitable[object]], *arguments: object) -> Call:
    return lambda: function(*arguments)


def _merge(measured: Measured, what: str, size: int) -> None:
    """Calls that had something else between them, as one line."""
    own = [t for t in measured.found if t.what == what and t.traces == size]
    measured.found = [t for t in measured.found if t not in own]
    p50s = [float(t.p50) for t in own]
    server = round(sum(t.server for t in own) / len(own))
    p50, p99 = round(quantile(p50s, 0.5)), round(quantile(p50s, 0.99))
    measured.found.append(Timed(what, size, len(own), p50, p99, server))


async def run(sizes: Sequence[int], most_thoughts: int, times: int) -> tuple[list[Memory], list[Timed]]:
    """All sizes, each on a server of its own."""
    memories: list[Memory] = []
    timed: list[Timed] = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder, EmbeddedServer(folder, maxmemory="8gb") as server:
            store = TreeStore.connect(server.url)
            try:
                measured = Measured(store)
                thoughts = max(1, min(THOUGHTS, most_thoughts // size))
                memories.append(await measure(measured, size, thoughts, times))
                timed += measured.found
            finally:
                await store.close()
    return memories, timed


def memory_table(memories: Sequence[Memory]) -> str:
    """Bytes, by C."""
    rows = [
        ["thoughts of a trace", *(f"{m.thoughts // m.traces}" for m in memories)],
        ["the whole tree, MB", *(f"{m.total / 1e6:,.1f}" for m in memories)],
        ["**bytes per token** (ids, text, thoughts)", *(f"**{m.per_token:.1f}**" for m in memories)],
        *([f"… {kind}", *(f"{m.by_kind[kind] / m.tokens:.1f}" for m in memories)] for kind in _PER_TOKEN),
        ["**bytes per node** (everything else)", *(f"**{m.per_node:,.0f}**" for m in memories)],
        *([f"… {kind}", *(f"{m.by_kind[kind] / m.traces:,.0f}" for m in memories)] for kind in _PER_NODE),
        ["bytes per event", *(f"{m.by_kind['events'] / m.events:.0f}" for m in memories)],
        ["bytes per tournament's record", *(f"{m.per_round:.0f}" for m in memories)],
    ]
    return markdown(["C", *(f"{m.traces:,}" for m in memories)], rows)


def time_table(timed: Sequence[Timed], sizes: Sequence[int]) -> str:
    """p50 / p99 by C, and the growth."""
    by_place = {(t.what, t.traces): t for t in timed}
    rows = []
    for what in dict.fromkeys(t.what for t in timed):
        own = [by_place[what, size] for size in sizes]
        growth = f"{own[-1].p50 / max(1, own[0].p50):.1f}"
        server = " / ".join(f"{t.server:,}" for t in own)
        rows.append([what, *(f"{t.p50:,} / {t.p99:,}" for t in own), growth, server])
    header = ["µs, p50 / p99; C", *(f"{size:,}" for size in sizes)]
    return markdown([*header, "growth of p50", "of that the server, mean, by C"], rows)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    options.add_argument("--times", type=int, default=200, help="of each call")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.sizes, args.times = [16, 32], 10
    memories, timed = asyncio.run(run(args.sizes, 200 if args.quick else MOST_THOUGHTS, args.times))
    table = memory_table(memories) + "\n\n" + time_table(timed, args.sizes)
    result = {
        "thought_tokens": THOUGHT_TOKENS,
        "K": K,
        "memory": [asdict(m) | {"per_token": m.per_token, "per_node": m.per_node} for m in memories],
        "times": [asdict(t) for t in timed],
    }
    path = save("store-quick" if args.quick else "store", result, table)
    print(f"{table}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
