"""Slim-SC through the whole worker: thoughts embedded beside the decoding, near twins pruned."""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from decoder_worker.embedding.base import EmbedderError
from decoder_worker.embedding.choice import embedder_loader
from decoder_worker.embedding.queue import EmbeddingQueue
from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import BLANK, END, text_tokens, write_trace
from tests.integration.decoder_worker.harness import (
    RecordingEngine,
    all_nodes,
    assert_each_token_counts_once,
    drawn,
    ended,
    replayed,
    turns,
    working,
)
from tests.integration.gateway.harness import eventually
from tree_store.model import NodeState, TreeState
from tree_store.store import TreeStore

# a step lasts long enough for the embedder's thread
SLOW = ScriptedConfig(slots=24, kv_blocks=4000, max_context=1600, turns=25)
SMALL = {"N": 8, "start_after": 2, "shortest": 10, "index_window": 1}


@dataclass
class ByScore:
    """The vector of a scripted thought says its score: 0.1 apart are 9 degrees apart. seconds: for each."""

    seconds: float = 0.0
    texts: list[str] = field(default_factory=list)

    def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        time.sleep(self.seconds * len(texts))
        self.texts += texts
        scores = [float((re.findall(r"\[([\d.]+)\]", text) or ["0"])[-1]) for text in texts]
        angles = [score * math.pi / 2 for score in scores]
        return [array("f", [math.cos(angle), math.sin(angle)]) for angle in angles]


async def pairs(store: TreeStore, tree_id: str) -> list[tuple[int, int]]:
    """(pruned, the one that stayed), by the policy's state."""
    state = json.loads(await store.policy_state(tree_id) or "{}")
    return [(gone, stays) for gone, stays in state["pruned"]]


async def begun(engine: RecordingEngine, traces: int) -> bool:
    return len(engine.added) == traces


@pytest.mark.parametrize("pruning", ["diversity", "random"])
async def test_of_traces_that_think_the_same_one_stays(redis_url: str, pruning: str) -> None:
    """Three pairs of twins and two of their own; each thought has 12 tokens."""
    courses = [0.0, 0.0, 0.2, 0.2, 0.4, 0.4, 0.6, 0.8]
    traces = [
        write_trace([(12, course + 0.01 * i) for i in range(10)], str(n)) for n, course in enumerate(courses)
    ]
    embedder = ByScore()
    async with working(redis_url, RecordingEngine(replayed(*traces), SLOW), embedder=embedder) as bench:
        record = await bench.solve("slim_sc", parameters={**SMALL, "pruning": pruning})
        nodes = await all_nodes(bench.store, record.tree_id)
        found = await pairs(bench.store, record.tree_id)
        await assert_each_token_counts_once(bench.store, record)
        await turns()
        assert bench.engine.resident() == []
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert not record.outcome.degraded
    assert {frozenset(pair) for pair in found} == {frozenset({1, 2}), frozenset({3, 4}), frozenset({5, 6})}
    assert {gone for gone, _ in found} == {n.node for n in nodes if n.state is NodeState.PRUNED}
    assert record.counts["finished"] == 5
    # none before the third thought was complete, its boundary passed
    assert all(node.total_tokens > 36 for node in nodes if node.state is NodeState.PRUNED)
    # from the second on: it may be as like to a third one
    assert not [text for text in embedder.texts if re.match(r"\[0\.[02468]00\]", text)]
    assert all(text.endswith("\n\n") for text in embedder.texts)


@pytest.mark.parametrize("seed", range(3))
async def test_drawn_traces_are_pruned_and_add_up(redis_url: str, seed: int) -> None:
    async with working(redis_url, RecordingEngine(drawn(seed), SLOW), embedder=ByScore()) as bench:
        record = await bench.solve("slim_sc", parameters={"N": 24, "start_after": 3, "threshold": 0.999})
        await assert_each_token_counts_once(bench.store, record)
        found = await pairs(bench.store, record.tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.counts["nodes"] == 24
    assert 0 < record.counts["pruned"] == len(found) < 24


async def test_short_thoughts_are_embedded_together(redis_url: str) -> None:
    trace = write_trace([(4, 0.1), (4, 0.2), (4, 0.3), (12, 0.4), (3, 0.5)], "1")
    embedder = ByScore()
    async with working(redis_url, RecordingEngine(replayed(trace), SLOW), embedder=embedder) as bench:
        await bench.solve("slim_sc", parameters={"N": 1, "start_after": 0, "shortest": 10})
    assert [re.findall(r"\[([\d.]+)\]", text) for text in embedder.texts] == [
        ["0.100", "0.200", "0.300"],
        ["0.400"],
    ]


async def test_a_slow_embedder_holds_up_nothing(redis_url: str) -> None:
    """It takes a second altogether; meanwhile the loop turns and the engine decodes."""
    embedder = ByScore(seconds=0.05)
    engine = RecordingEngine(drawn(1), ScriptedConfig(slots=24, kv_blocks=4000, max_context=1600, turns=20))
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - began)

    async with working(redis_url, engine, embedder=embedder) as bench:
        watching = asyncio.create_task(watch())
        record = await bench.solve("slim_sc", parameters={"N": 24, "start_after": 1, "threshold": 1.0})
        watching.cancel()
        await asyncio.wait([watching])
    assert record.state is TreeState.SUCCEEDED
    # what nobody looks at any more is left out: the search does not wait for it either
    assert len(embedder.texts) < record.counts["thoughts"] - 24
    # a batch of 24 takes 1.2 s, and no turn of the loop a fraction of it
    assert longest < 1.0


async def test_thoughts_are_embedded_again_after_a_takeover(redis_url: str) -> None:
    traces = [write_trace([(12, course + 0.01 * i) for i in range(10)], "1") for course in (0.0, 0.3, 0.3)]
    source = replayed(*traces)  # the second goes on where the first has begun
    first, second = RecordingEngine(source, SLOW), RecordingEngine(source, SLOW)
    engines = (first, second)
    for engine in engines:
        engine.pace(0)
    # the first worker's embedder is so slow that no vector comes back
    async with working(redis_url, first, embedder=ByScore(seconds=0.5)) as bench:
        tree_id = await bench.start("slim_sc", parameters={**SMALL, "N": 3})
        await eventually(lambda: begun(first, 3))
        await first.advance(66)
        assert await pairs(bench.store, tree_id) == []
    embedder = ByScore()
    async with working(redis_url, second, name="second", embedder=embedder) as bench:
        await bench.give(tree_id)

        async def embedded() -> bool:
            return len(embedder.texts) >= 12

        await eventually(embedded)
        # the second to the fifth thought of each trace, none of which has decoded anything here
        assert second.generated == 0
        assert sorted({text[:7] for text in embedder.texts}) == [
            f"[{course + 0.01 * i:.3f}]" for course in (0.0, 0.3) for i in range(1, 5)
        ]
        second.pace(None)
        record = await ended(bench.store, tree_id)
        found = await pairs(bench.store, tree_id)
    assert record.worker == "second"
    assert [frozenset(pair) for pair in found] == [frozenset({2, 3})]
    assert record.counts["finished"] == 2


async def test_an_embedder_that_fails_degrades_the_search_and_ends_nothing(redis_url: str) -> None:
    class Broken:
        def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
            raise MemoryError("no room")

    async with working(redis_url, RecordingEngine(drawn(1), SLOW), embedder=Broken()) as bench:
        record = await bench.solve("slim_sc", parameters={"N": 6, "start_after": 1})
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert record.outcome.degraded
    assert record.counts["finished"] == 6


async def test_without_an_embedder_slim_sc_is_refused_and_told_what_to_do(redis_url: str) -> None:
    async with working(redis_url, RecordingEngine(drawn(1), SLOW)) as bench:
        record = await bench.solve("slim_sc")
        assert record.state is TreeState.FAILED
        assert record.failure is not None
        assert (record.failure.code, record.failure.reason) == (9, "NO_EMBEDDER")
        assert "thoughtbeam[slim_sc]" in record.failure.message
        assert "embedding_model" in record.failure.message
        assert (await bench.solve("self_consistency", parameters={"N": 2})).state is TreeState.SUCCEEDED


async def test_an_embedder_that_cannot_be_loaded_fails_the_search_alone(redis_url: str) -> None:
    def load() -> ByScore:
        raise EmbedderError("the folder is gone")

    async with working(redis_url, RecordingEngine(drawn(1), SLOW), embedder=ByScore()) as bench:
        bench.worker.embedding = EmbeddingQueue(load)
        record = await bench.solve("slim_sc")
        assert record.failure is not None
        assert record.failure.reason == "NO_EMBEDDER"
        assert "cannot load its own: the folder is gone" in record.failure.message
        await bench.worker.embedding.close()


async def test_the_packaged_model_tells_what_is_said_twice(redis_url: str) -> None:
    load = embedder_loader(None)
    assert load is not None, "requirements/cpu.txt has the model"
    embedder = load()
    said = [
        "First add seven to the start, which gives nineteen.",
        "Now multiply nineteen by three: fifty seven.",
    ]
    other = [
        "The triangle has two equal sides, so its angles match.",
        "Hence the height cuts the base in half.",
    ]

    def trace(thoughts: Sequence[str], answer: str) -> list[int]:
        text = "\n\n".join([*thoughts, f"\\boxed{{{answer}}}"])
        return [*text_tokens(text), END]

    traces = [trace(said, "57"), trace(other, "2"), trace(said, "57")]
    assert all(BLANK in tokens for tokens in traces)
    engine = RecordingEngine(replayed(*traces), ScriptedConfig(max_context=1600))
    engine.pace(0)
    async with working(redis_url, engine, embedder=embedder) as bench:
        tree_id = await bench.start("slim_sc", parameters={"N": 3, "start_after": 0})
        await eventually(lambda: begun(engine, 3))
        await engine.advance(60)  # the first thoughts are complete

        async def pruned() -> bool:
            return bool((await bench.store.tree(tree_id)).counts["pruned"])

        await eventually(pruned)
        engine.pace(None)
        record = await ended(bench.store, tree_id)
        found = await pairs(bench.store, tree_id)
    assert [frozenset(pair) for pair in found] == [frozenset({1, 3})]
    assert record.counts["finished"] == 2
