"""Gambit (arXiv 2608.08020) through the whole worker: the published runs, memory pressure, repetition."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import (
    BLANK,
    END,
    FILLER,
    Replay,
    score_token,
    text_tokens,
    write_thought,
)
from tests.integration.decoder_worker.harness import (
    RecordingEngine,
    assert_each_token_counts_once,
    drawn,
    ended,
    feed,
    parents,
    paths,
    rounds,
    working,
)
from tests.integration.gateway.harness import eventually
from tree_store.events import Event
from tree_store.model import NodeState, TreeState


@dataclass
class Directed:
    """Traces that do nothing of interest until they are told to. orders: next tokens by trace id."""

    orders: dict[str, list[int]] = field(default_factory=dict)

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        while True:
            ordered = self.orders.pop(trace_id, [FILLER])
            yield from ordered
            if ordered[-1] == END:
                return


class Director:
    """Drives a search on a `Directed` engine through one thing after the other."""

    def __init__(self, engine: RecordingEngine, source: Directed) -> None:
        self._engine = engine
        self._orders = source.orders
        self._random = Random(0)

    async def think(self, traces: Sequence[str]) -> None:
        """Each of them passes one thought; the scores arrive together."""
        for trace in traces:
            self._orders[trace] = [score_token(self._random.random()), BLANK]
        await self._engine.advance(3)  # the score, the boundary, and the step that brings its row

    async def finish(self, traces: Sequence[str]) -> None:
        """They end together, without an answer: what counts here are the traces."""
        for trace in traces:
            self._orders[trace] = [END]
        await self._engine.advance()


@pytest.mark.no_asyncio_debug
async def test_the_published_accounting(redis_url: str) -> None:
    """1,595 nodes = 256 roots + 1,339 branches; 1,083 pruned, 256 finished, 256 cancelled.

    C, K, Δ and N_max are the paper's; the warm-up is not its 12,000 tokens, which would take an hour here.
    """
    source = Directed()
    engine = RecordingEngine(source, ScriptedConfig(slots=300, kv_blocks=20_000))
    engine.pace(0)
    async with working(redis_url, engine, profile="paper") as bench:
        tree_id = await bench.start("gambit", parameters={"warmup": 4})

        async def all_are_live() -> bool:
            return len(engine.added) == 256

        await eventually(all_are_live)
        director = Director(engine, source)
        await engine.advance()
        # when at the first tournament 11 traces have a score, and may be branched
        eleven = engine.resident()[:11]
        for _ in range(18):
            await director.think(eleven)
        await director.think(eleven[:2])
        # and 200 have passed a boundary at the others; traces finish in bursts of 15, with exchanges between
        exchanges = 67
        for _ in range(17):
            for _ in range(min(4, exchanges)):
                await director.think(engine.resident()[:200])
                exchanges -= 1
            await director.finish(engine.resident()[:15])
            await director.think(engine.resident()[:200])
        await director.finish(engine.resident()[:1])
        record = await ended(bench.store, tree_id)
        held = rounds(await feed(bench.store, tree_id))

    assert record.state is TreeState.SUCCEEDED
    assert {name: record.counts[name] for name in ("nodes", "roots", "branches")} == {
        "nodes": 1595,
        "roots": 256,
        "branches": 1339,
    }
    assert {name: record.counts[name] for name in ("pruned", "finished", "cancelled")} == {
        "pruned": 1083,
        "finished": 256,
        "cancelled": 256,
    }
    exchanged = [(len(pruned), len(branched)) for pruned, branched in held if pruned]
    assert exchanged == [(11, 11)] + 67 * [(16, 16)]
    # one refill for each finish, the last one included
    assert [len(branched) for pruned, branched in held if not pruned] == 17 * [15] + [1]
    assert held[-1][0] == []


async def test_the_worked_example_action_by_action(redis_url: str) -> None:
    """C = 5, K = 2, two tournaments; leaves 29, 29 with 1.78 beat 52, 52 with 1.43."""
    tree_id = str(uuid.uuid4())
    on = [FILLER] * 400

    def trace(*scores: float, tokens: int = 10) -> list[int]:
        return [token for score in scores for token in write_thought(tokens, score)]

    def end(answer: str, after: int) -> list[int]:
        return [*[FILLER] * after, *text_tokens(f"\\boxed{{{answer}}}"), END]

    nodes = {
        1: [*trace(0.30, 0.34), *on],
        2: [*trace(0.20, 0.24), *on],
        3: [*trace(0.70, 0.74, 0.76, 0.80), *end("52", after=15)],
        4: [*trace(0.50, 0.54, 0.40, 0.40), *on],
        5: [*trace(0.80, 0.84, 0.92, 0.96), *end("29", after=5)],
        6: [*trace(0.96, 1.00), *end("29", after=25)],  # T5.1
        7: [*trace(0.60, 0.60), *on],  # T3.1
        8: [*trace(0.90, tokens=20), *on],
        9: [*trace(0.28, tokens=20), *trace(0.28), *end("52", after=15)],
        10: on,
    }
    engine = RecordingEngine(Replay({f"{tree_id}/{number}": tokens for number, tokens in nodes.items()}))
    engine.pace(0)
    asked = {"C": 5, "K": 2, "interval": 10, "warmup": 20, "N_max": 4}
    async with working(redis_url, engine) as bench:
        store, read = bench.store, ""
        await bench.start("gambit", tree_id=tree_id, parameters=asked)

        async def until(expected: Moves, *, held: int) -> dict[int, list[str | int]]:
            """What has happened from here on, by node, when it is as much and so many rounds were held."""
            nonlocal read
            found: list[Event] = []

            async def there() -> bool:
                found.extend(await feed(store, tree_id, found[-1].event_id if found else read))
                return sum(event.kind == "node" for event in found) >= len(expected)

            await eventually(there)
            read = found[-1].event_id
            assert sum(event.kind == "round" for event in found) == held
            moved = [event.fields for event in found if event.kind == "node"]
            parent = parents(found)
            return of(
                [(n := int(f["node"]), f["to"], parent.get(n) if "parent" in f else None) for f in moved]
            )

        # five roots T1 … T5
        started = [(n, state, None) for n in range(1, 6) for state in ("pending", "live")]
        assert await until(started, held=0) == of(started)

        # the first tournament: T2 and T1 are pruned, T5 and T3 branched into T5.1 and T3.1
        await engine.advance(21)
        first = [(2, "pruned", None), (1, "pruned", None), (6, "pending", 5), (6, "live", None)]
        first += [(7, "pending", 3), (7, "live", None)]
        assert await until(first, held=1) == of(first)

        # the second: T4 and T3.1 are pruned, T5.1 and T5 branched
        await engine.advance(24)
        second = [(4, "pruned", None), (7, "pruned", None), (8, "pending", 6), (8, "live", None)]
        second += [(9, "pending", 5), (9, "live", None)]
        assert await until(second, held=1) == of(second)

        # T5, T3 and T5.1 finish
        for number, steps in ((5, 15), (3, 10), (6, 10)):
            await engine.advance(steps)
            assert await until([(number, "finished", None)], held=0) == {number: ["finished"]}

        # the last finish closes a round: its place is filled first, then the rest is cancelled
        engine.pace(None)
        last = [(9, "finished", None), (10, "pending", 8), (8, "cancelled", None), (10, "cancelled", None)]
        assert await until(last, held=1) == of(last)

        record = await ended(store, tree_id)
        events = await feed(store, tree_id)
    assert rounds(events) == [([2, 1], [5, 3]), ([4, 7], [6, 5]), ([], [8])]
    assert parents(events) == {6: 5, 7: 3, 8: 6, 9: 5, 10: 8}
    assert record.outcome is not None
    assert record.outcome.answer == "29"
    assert [(vote.answer, vote.nodes) for vote in record.outcome.votes] == [("29", (6, 5)), ("52", (3, 9))]
    assert [vote.weight for vote in record.outcome.votes] == pytest.approx([1.78, 1.43])


Moves = Sequence[tuple[int, str, int | None]]  # node, state, and the parent of a branch at its birth


def of(moves: Moves) -> dict[int, list[str | int]]:
    """Moves by node: nodes that change in one write come into the feed one after the other, in any order. In
    which order a tournament chose them, its record says."""
    by_node: dict[int, list[str | int]] = {}
    for node, state, parent in moves:
        by_node.setdefault(node, []).extend([state] if parent is None else [state, parent])
    return by_node


STORM = {"C": 32, "K": 4, "interval": 32, "warmup": 60, "N_max": 32}


@pytest.mark.parametrize("seed", range(4))
async def test_an_eviction_storm_opens_no_place(redis_url: str, seed: int) -> None:
    # given KV for a quarter of 32 traces of some 400 tokens
    engine = RecordingEngine(drawn(seed), ScriptedConfig(slots=32, kv_blocks=200, max_context=1600))
    async with working(redis_url, engine) as bench:
        record = await bench.solve("gambit", parameters=STORM)
        events = await feed(bench.store, record.tree_id)
        await assert_each_token_counts_once(bench.store, record)
    # then ghosts appear, and the search ends with an answer: it would have failed had one been branched
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert record.outcome.answer is not None
    walked, children = paths(events), parents(events)
    ghosts = {number for number, path in walked.items() if NodeState.GHOST in path}
    assert len(ghosts) == record.counts["evictions"] > 8
    # and they count: nothing is branched but for a pruning or a finish
    counts = record.counts
    assert 0 < counts["branches"] <= counts["pruned"] + counts["finished"]
    assert len(children) == counts["branches"]
    # and no ghost comes back: each trace came to the engine once, and what it decoded is in the tree
    assert len(engine.added) == len(set(engine.added))
    assert all("pending" not in path[1:] for path in walked.values())
    assert engine.generated >= record.usage["generated"]
    assert engine.resident() == []


async def test_the_same_seed_gives_the_same_search(redis_url: str) -> None:
    histories = []
    for _ in range(2):
        engine = RecordingEngine(drawn(7), ScriptedConfig(slots=12, kv_blocks=150, max_context=1600))
        async with working(redis_url, engine) as bench:
            record = await bench.solve(
                "gambit", parameters={"C": 16, "K": 4, "interval": 16, "warmup": 60, "N_max": 16}, seed=7
            )
            events = await feed(bench.store, record.tree_id)
        # which steps' changes are written together is a matter of time, and with it the order among nodes
        history = [event.fields for event in events if event.kind == "round"]
        histories.append(
            (history, paths(events), parents(events), record.counts, record.usage, record.outcome)
        )
    assert histories[0] == histories[1]
    assert histories[0][3]["evictions"] > 0
    assert histories[0][3]["branches"] > 0
