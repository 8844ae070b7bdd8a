"""Searches that are scored by the model's own confidence: on a worker that has no prm worker."""

from __future__ import annotations

import math

import grpc
import pytest

from decoder_worker.engine.scripted_traces import Drawn
from decoder_worker.policies import POLICIES
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    all_nodes,
    ended,
    working,
)
from tests.integration.decoder_worker.test_policies_handover import (
    ASKED,
    ROOMY,
    Written,
    course,
    has_begun,
    paused,
)
from tree_store.model import TreeRecord, TreeState
from tree_store.store import TreeStore


async def begin(bench: Bench, policy: str) -> str:
    return await bench.start(policy, parameters=dict(ASKED[policy]), scorer="confidence")


async def finished(bench: Bench, engine: RecordingEngine, tree_id: str) -> TreeRecord:
    engine.pace(None)
    record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.scorer == "confidence"
    assert record.outcome is not None
    assert not record.outcome.degraded
    return record


async def assert_scored(store: TreeStore, tree_id: str) -> None:
    """Each thought by its own confidence."""
    nodes = await all_nodes(store, tree_id)
    contents = await store.contents(tree_id, [node.node for node in nodes])
    scored = [t for content in contents for t in content.thoughts if t.score is not None]
    assert len(scored) > 20
    assert len({t.score for t in scored}) > 10
    for thought in scored:
        assert thought.confidence is not None
        assert thought.score == pytest.approx(1 - math.log(20) / thought.confidence, abs=1e-6)
    assert not any(content.history for content in contents)


@pytest.mark.parametrize("policy", [name for name in ASKED if POLICIES[name].needs_scores])
async def test_a_search_needs_no_prm_worker_and_goes_on_at_the_next_worker(
    redis_url: str, policy: str
) -> None:
    engine = paused(Written(Drawn(1)), ROOMY)
    async with working(redis_url, engine, has_scorer=False) as bench:
        tree_id = await begin(bench, policy)
        await has_begun(engine)
        record = await finished(bench, engine, tree_id)
        await assert_scored(bench.store, tree_id)
        expected = await course(bench.store, record)
    written = Written(Drawn(1))
    first, second = paused(written), paused(written)
    async with working(redis_url, first, has_scorer=False) as bench:
        tree_id = await begin(bench, policy)
        await has_begun(first)
        await first.advance(round(0.5 * engine.step_number))
    async with working(redis_url, second, name="second", has_scorer=False) as bench:
        await bench.give(tree_id)
        await has_begun(second)
        record = await finished(bench, second, tree_id)
        found = await course(bench.store, record)
    # means of float32 scores: equal but for what the store rounds
    assert (found.rounds, found.parents, found.answer) == (expected.rounds, expected.parents, expected.answer)
    assert {n: node[:2] for n, node in found.nodes.items()} == {
        n: node[:2] for n, node in expected.nodes.items()
    }


async def test_the_workers_own_scorer_is_used_where_none_is_named(redis_url: str) -> None:
    engine = RecordingEngine(Written(Drawn(1)), ROOMY)
    async with working(redis_url, engine) as bench:
        record = await bench.solve("best_of_n", parameters={"N": 4})
        unscored = await bench.solve("self_consistency", parameters={"N": 4}, scorer="confidence")
    assert (record.scorer, record.scorer_id) == ("scripted", "scripted")
    assert unscored.scorer == ""  # it needs none


@pytest.mark.parametrize(
    ("scorer", "code", "reason"),
    [
        ("", grpc.StatusCode.FAILED_PRECONDITION, "NO_SCORER"),
        ("guess", grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"),
    ],
)
async def test_what_cannot_be_scored_is_refused(
    redis_url: str, scorer: str, code: grpc.StatusCode, reason: str
) -> None:
    engine = RecordingEngine(Written(Drawn(1)), ROOMY)
    async with working(redis_url, engine, has_scorer=False) as bench:
        record = await bench.solve("best_of_n", parameters={"N": 4}, scorer=scorer)
    assert record.failure is not None
    assert (record.failure.code, record.failure.reason) == (code.value[0], reason)
    assert "confidence" in f"{record.failure.message} {record.failure.violations}"
