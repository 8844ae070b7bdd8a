"""`python -m bench.tournament`: what one tournament costs, in the policy and in the tree store.

A tree with C live traces of 20 scored thoughts; gambit decides a full exchange of K traces (the policy),
and the exchange is written with its round and the policy's state as one script (Redis: the embedded Valkey
on loopback). For scale, the same write of one engine step in which 1 % of the traces pass a boundary.
Microseconds, p50 and p99.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
import uuid

from bench.report import markdown, quantile, save
from decoder_worker.policies import Limits, make_policy
from decoder_worker.policies.base import BoundariesScored, Branch, Prune
from decoder_worker.tree_view import TreeView
from tree_store.embedded import EmbeddedServer
from tree_store.model import Batch, NewTree, NodeChange, NodeState, RoundRecord, Thought
from tree_store.store import TreeStore

THOUGHTS = 20
THOUGHT_TOKENS = 40


def grown_tree(size: int, rng: random.Random) -> TreeView:
    """C live roots with random scores."""
    view = TreeView()
    for _ in range(size):
        trace = view.add_root()
        view.move(trace, NodeState.LIVE)
        for index in range(THOUGHTS):
            view.append_tokens(trace, range(THOUGHT_TOKENS))
            trace.thoughts.append(Thought(trace.total_tokens))
            view.set_score(trace, index, rng.random())
    return view


class Measured:
    """One tree in the store, and how long its writes take."""

    def __init__(self, store: TreeStore, view: TreeView) -> None:
        self._store = store
        self._view = view
        self._tree_id = str(uuid.uuid4())
        self._epoch = 0
        self._seq = 0

    async def create(self) -> None:
        """The tree with all its live roots."""
        await self._store.create(
            NewTree(self._tree_id, "{}", "", "m", "gambit", "paper", "", time.time() + 3600)
        )
        self._epoch = (await self._store.assign(self._tree_id, "bench", 3600.0)).epoch
        traces = list(self._view.traces.values())
        for start in range(0, len(traces), 256):
            await self.write(
                Batch(
                    nodes=tuple(
                        NodeChange(
                            node=trace.number,
                            before=None,
                            path=(NodeState.PENDING, NodeState.LIVE),
                            mean_score=trace.mean_score,
                            tokens=tuple(trace.tokens),
                            thoughts=tuple(trace.thoughts),
                        )
                        for trace in traces[start : start + 256]
                    )
                )
            )

    async def write(self, batch: Batch) -> float:
        """Returns the seconds that it took."""
        self._seq += 1
        began = time.perf_counter()
        await self._store.commit(self._tree_id, self._epoch, self._seq, batch)
        return time.perf_counter() - began

    def exchange(self, pruned: list[int], parents: list[int], number: int) -> Batch:
        """One tournament as the search writes it."""
        gone = tuple(NodeChange(node=n, before=NodeState.LIVE, path=(NodeState.PRUNED,)) for n in pruned)
        born = tuple(
            NodeChange(
                node=len(self._view) + i + 1,
                before=None,
                path=(NodeState.PENDING, NodeState.LIVE),
                parent=parent,
                branch_position=THOUGHTS * THOUGHT_TOKENS,
                mean_score=self._view[parent].mean_score,
            )
            for i, parent in enumerate(parents)
        )
        record = RoundRecord(
            number, 200 * number, len(self._view), len(self._view), 0, 0.5, tuple(pruned), tuple(parents)
        )
        return Batch(nodes=gone + born, rounds=(record,), policy_state='{"thoughts": 0, "by_trace": []}')


async def measure(store: TreeStore, size: int, k: int, times: int) -> dict[str, list[float]]:
    """Seconds of every repetition, by what was done."""
    rng = random.Random(size)
    policy = make_policy("gambit", "paper", {"C": size, "K": k, "warmup": 0}, Limits(size, 100_000))
    state = policy.initial(0)
    observation = BoundariesScored(tuple((n, 0.5) for n in range(1, 201)) if size >= 200 else ())
    deciding: list[float] = []
    view = grown_tree(size, rng)
    for _ in range(times):
        began = time.perf_counter()
        step = policy.step(state, view, observation)
        deciding.append(time.perf_counter() - began)
        assert len(step.actions) == 2 * k, "a full exchange was meant to be measured"
    writing: list[float] = []
    boundaries: list[float] = []
    measured = Measured(store, view)
    await measured.create()
    for number in range(1, times + 1):
        step = policy.step(state, view, observation)
        pruned = [a.node for a in step.actions if isinstance(a, Prune)]
        parents = [a.parent for a in step.actions if isinstance(a, Branch)]
        batch = measured.exchange(pruned, parents, number)
        writing.append(await measured.write(batch))
        for node in pruned:
            view.move(view[node], NodeState.PRUNED)
        for parent in parents:
            child = view.add_branch(view[parent])
            view.move(child, NodeState.LIVE)
            view.append_tokens(child, range(THOUGHT_TOKENS))
            child.thoughts.append(Thought(child.total_tokens))
            view.set_score(child, 0, rng.random())
        live = rng.sample(view.in_state(NodeState.LIVE), max(1, size // 100))
        step_batch = Batch(
            nodes=tuple(
                NodeChange(
                    node=t.number,
                    before=NodeState.LIVE,
                    mean_score=t.mean_score,
                    fields={"thoughts": "21"},
                    tokens=tuple(range(THOUGHT_TOKENS)),
                    text="x" * 100,
                    thoughts=(Thought(900, 0.5),),
                )
                for t in live
            )
        )
        boundaries.append(await measured.write(step_batch))
    return {
        "policy decides": deciding,
        "store writes the exchange": writing,
        "store writes a step": boundaries,
    }


async def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--sizes", type=int, nargs="+", default=[256, 4096])
    options.add_argument("-K", type=int, default=16)
    options.add_argument("--times", type=int, default=200)
    args = options.parse_args()
    rows: list[list[str]] = []
    results: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedServer(folder) as server:
        store = TreeStore.connect(server.url)
        try:
            for size in args.sizes:
                for what, seconds in (await measure(store, size, args.K, args.times)).items():
                    p50, p99 = quantile(seconds, 0.5) * 1e6, quantile(seconds, 0.99) * 1e6
                    results[f"{what}, C = {size}"] = {"p50_us": round(p50), "p99_us": round(p99)}
                    rows.append([f"{size}", f"{args.K}", what, f"{p50:,.0f}", f"{p99:,.0f}"])
        finally:
            await store.close()
    table = markdown(["C", "K", "what", "p50 µs", "p99 µs"], rows)
    path = save("tournament", {"times": args.times, "K": args.K, "results": results}, table)
    print(f"{table}\n\nwritten to {path}")


if __name__ == "__main__":
    asyncio.run(main())
