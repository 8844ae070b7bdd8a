"""DeepConf through the whole worker: confidences of the engine, in the store, and back after a takeover."""

from __future__ import annotations

from array import array
from statistics import fmean

import pytest

from decoder_worker.answers.confidence import falls_below, measure
from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import BLANK, Drawn, write_trace
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    all_nodes,
    assert_each_token_counts_once,
    drawn,
    ended,
    replayed,
    turns,
    working,
)
from tests.integration.decoder_worker.test_policies_handover import Written, course, has_begun, paused
from tree_store.model import NodeState, TreeState
from tree_store.store import TreeStore

ROOMY = ScriptedConfig(slots=24, kv_blocks=4000, max_context=1600)
ONLINE = {"N": 16, "warmup_traces": 6}
WINDOW = 64  # of the profile tiny


async def confidences_of(store: TreeStore, tree_id: str) -> dict[int, list[float]]:
    """As stored, by node. Every token has one, every thought the mean of its own."""
    nodes = await all_nodes(store, tree_id)
    contents = await store.contents(tree_id, [node.node for node in nodes])
    for content in contents:
        assert len(content.confidences) == len(content.tokens)
        start = 0
        for thought in content.thoughts:
            assert thought.confidence == pytest.approx(fmean(content.confidences[start : thought.position]))
            start = thought.position
    return {node.node: list(content.confidences) for node, content in zip(nodes, contents, strict=True)}


@pytest.mark.parametrize("seed", range(3))
async def test_online_stops_the_traces_that_fall_below_the_threshold(redis_url: str, seed: int) -> None:
    async with working(redis_url, RecordingEngine(drawn(seed), ROOMY)) as bench:
        record = await bench.solve("deepconf", parameters={**ONLINE, "tau": 1.0, "consensus_traces": 16})
        await assert_each_token_counts_once(bench.store, record)
        confidences = await confidences_of(bench.store, record.tree_id)
        nodes = await all_nodes(bench.store, record.tree_id)
        await turns()
        assert bench.engine.resident() == []
    assert record.state is TreeState.SUCCEEDED
    assert record.counts["nodes"] == 16
    pruned = {node.node for node in nodes if node.state is NodeState.PRUNED}
    assert pruned
    assert min(pruned) > 6
    lowest = {n: measure(c, "lowest", WINDOW) for n, c in confidences.items()}
    threshold = sorted(low for n, low in lowest.items() if n <= 6 and low is not None)[2:4]
    s = sum(threshold) / 2  # the median of six: η is 50
    for node in nodes:
        of = array("f", confidences[node.node])
        below = falls_below(of, s, WINDOW, len(of))
        # stopped within an interval of eight steps
        assert not falls_below(of[:-8], s, WINDOW, len(of)) or node.node <= 6
        assert below or node.node not in pruned


async def test_offline_keeps_the_surest_half(redis_url: str) -> None:
    """Six traces of one length, the surer ones of another answer than the many."""
    answers = ["1", "2", "2", "2", "1", "2"]
    sure = [9.0, 2.0, 3.0, 4.0, 8.0, 5.0]
    traces = [write_trace([(30, 0.5)] * 4, answer) for answer in answers]

    def confidence(trace_id: str, position: int, score: float) -> float:
        return sure[int(trace_id.rpartition("/")[2]) - 1]

    engine = RecordingEngine(replayed(*traces), ScriptedConfig(max_context=1600, confidence=confidence))
    async with working(redis_url, engine) as bench:
        record = await bench.solve("deepconf", parameters={"mode": "offline", "N": 6})
        confidences = await confidences_of(bench.store, record.tree_id)
    assert record.counts["finished"] == 6
    assert record.outcome is not None
    assert record.outcome.answer == "1"
    assert {vote.answer: vote.weight for vote in record.outcome.votes}["1"] == 17.0
    assert [set(confidences[n]) for n in sorted(confidences)] == [{c} for c in sure]


async def test_an_engine_is_asked_for_confidences_only_when_the_policy_needs_them(redis_url: str) -> None:
    async with working(redis_url, RecordingEngine(drawn(1), ROOMY)) as bench:
        record = await bench.solve("self_consistency", parameters={"N": 3})
        contents = await bench.store.contents(record.tree_id, [1, 2, 3])
    assert all(content.tokens and not content.confidences for content in contents)
    assert all(thought.confidence is None for content in contents for thought in content.thoughts)


async def run(bench: Bench, tree_id: str) -> tuple[object, dict[int, list[float]]]:
    record = await ended(bench.store, tree_id)
    return await course(bench.store, record), await confidences_of(bench.store, tree_id)


@pytest.mark.parametrize("mode", ["online", "offline"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
async def test_confidences_survive_a_takeover(redis_url: str, mode: str, share: float) -> None:
    """The second worker goes on in the middle of thoughts, and does what the first would have done."""
    parameters = {**ONLINE, "mode": mode}
    engine = paused(Written(Drawn(2)))
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start("deepconf", parameters=parameters)
        await has_begun(engine)
        engine.pace(None)
        expected = await run(bench, tree_id)
    steps = engine.step_number
    written = Written(Drawn(2))
    first, second = paused(written), paused(written)
    async with working(redis_url, first) as bench:
        tree_id = await bench.start("deepconf", parameters=parameters)
        await has_begun(first)
        await first.advance(round(steps * share))
    async with working(redis_url, second, name="second") as bench:
        held_back = await confidences_of(bench.store, tree_id)
        contents = await bench.store.contents(tree_id, list(held_back))
        assert any(content.tokens[-1] != BLANK for content in contents if content.tokens)
        await bench.give(tree_id)
        await has_begun(second)
        second.pace(None)
        assert await run(bench, tree_id) == expected
    assert first.generated
    assert second.generated


async def test_what_a_worker_that_dies_had_beyond_its_checkpoints_is_asked_for_again(redis_url: str) -> None:
    written = Written(Drawn(5))
    first, second = paused(written), paused(written)
    async with working(redis_url, first) as bench:
        tree_id = await bench.start("deepconf", parameters=ONLINE)
        await has_begun(first)
        await first.advance(150)
        await bench.store.requeue(tree_id, 1)  # its lease runs out
        async with working(redis_url, second, name="second") as other:
            await other.give(tree_id)
            await has_begun(second)
            second.pace(None)
            record = await ended(other.store, tree_id)
            assert record.state is TreeState.SUCCEEDED
            await confidences_of(other.store, tree_id)
