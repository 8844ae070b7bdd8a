"""A tree that changes its worker: what is kept, and what a worker lets go of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from decoder_worker import tree_run
from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import BLANK
from decoder_worker.policies.gambit import GambitState
from decoder_worker.policies.state import load
from tests.integration.decoder_worker.harness import (
    LONG_LEASE,
    RecordingEngine,
    ScriptedScoring,
    all_nodes,
    assert_each_token_counts_once,
    assert_texts_fit,
    drawn,
    ended,
    working,
)
from tests.integration.gateway.harness import eventually, reaches
from tree_store.model import NodeContent, NodeState, TreeState
from tree_store.store import TreeStore

GAMBIT = {"C": 8, "K": 2, "interval": 8, "warmup": 40, "N_max": 8}


def paused(slots: int = 8) -> RecordingEngine:
    engine = RecordingEngine(drawn(2), ScriptedConfig(slots=slots))
    engine.pace(0)
    return engine


def running(slots: int = 8) -> RecordingEngine:
    return RecordingEngine(drawn(2), ScriptedConfig(slots=slots))


async def until_resident(engine: RecordingEngine, count: int) -> None:
    """Lets the engine decode a token of each of so many traces."""

    async def there() -> bool:
        if len(engine.added) < count:
            return False
        engine.pace(1)
        return len(engine.resident()) >= count

    await eventually(there)


async def handed_back_early(redis_url: str, policy: str, parameters: dict[str, Any]) -> str:
    """A tree whose first worker has stopped some tokens into it, before any boundary."""
    engine = paused()
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start(policy, parameters=parameters)
        await until_resident(engine, 2)
        await engine.advance(5)
    return tree_id


async def test_a_search_handed_back_before_its_first_score_is_resumed(redis_url: str) -> None:
    tree_id = await handed_back_early(redis_url, "gambit", GAMBIT)
    async with working(redis_url, running(), name="second") as bench:
        record = await bench.store.tree(tree_id)
        assert record.state is TreeState.QUEUED
        # then the policy's state is there from its start on
        state = await bench.store.policy_state(tree_id)
        assert state is not None
        assert load(GambitState, state) == GambitState()
        assert await bench.give(tree_id) == 2
        record = await ended(bench.store, tree_id)
        await assert_texts_fit(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.worker == "second"
    assert record.counts["roots"] == 8


@pytest.mark.parametrize("policy", ["self_consistency", "best_of_n"])
async def test_generated_counts_each_token_once_over_a_handover(redis_url: str, policy: str) -> None:
    first = paused()
    async with working(redis_url, first) as bench:
        tree_id = await bench.start(policy, parameters={"N": 8})
        await until_resident(first, 8)
        await first.advance(100)
    second = running()
    async with working(redis_url, second, name="second") as bench:
        await assert_texts_fit(bench.store, tree_id)
        before = await bench.store.tree(tree_id)
        stored = sum(node.unique_tokens for node in await all_nodes(bench.store, tree_id))
        assert before.usage["generated"] == stored == first.generated
        await bench.give(tree_id)
        record = await ended(bench.store, tree_id)
        await assert_each_token_counts_once(bench.store, record)
        await assert_texts_fit(bench.store, tree_id)
    assert record.usage["generated"] == first.generated + second.generated


@pytest.mark.parametrize("policy", ["vanilla", "self_consistency"])
async def test_generated_is_counted_for_policies_without_scores(redis_url: str, policy: str) -> None:
    engine = running()
    async with working(redis_url, engine) as bench:
        record = await bench.solve(policy)
        await assert_each_token_counts_once(bench.store, record)
    assert record.usage["generated"] == engine.generated > 0


@pytest.mark.parametrize("scored_in_time", [True, False])
async def test_thoughts_whose_scores_are_under_way_at_a_hand_back_are_kept(
    redis_url: str, scored_in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_run, "LATE_SCORES_SECONDS", 5.0 if scored_in_time else 0.1)
    engine, scoring = paused(), ScriptedScoring(holding=True)
    async with working(redis_url, engine, scoring=scoring) as bench:
        tree_id = await bench.start("best_of_n", parameters={"N": 4})
        await until_resident(engine, 4)
        await engine.advance(140)
        under_way = len(scoring.held)
        assert under_way > 4
        bench.stop.set()
        if scored_in_time:
            await asyncio.sleep(0.05)
            scoring.release()
        await reaches(bench.store, tree_id, TreeState.QUEUED)
    async with working(redis_url, running(), name="second") as bench:
        held = await contents(bench.store, tree_id)
        thoughts = [thought for content in held for thought in content.thoughts]
        assert len(thoughts) == under_way
        assert all((thought.score is not None) == scored_in_time for thought in thoughts)
        for content in held:
            boundaries = [i + 1 for i, token in enumerate(content.tokens) if token == BLANK]
            # the row of a boundary comes a step after it
            assert [thought.position for thought in content.thoughts] == [
                position for position in boundaries if position < len(content.tokens)
            ]
        await bench.give(tree_id)
        record = await ended(bench.store, tree_id)
        after = await contents(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    for old, new in zip(held, after, strict=True):
        assert new.thoughts[: len(old.thoughts)] == old.thoughts
        positions = [thought.position for thought in new.thoughts]
        assert positions == sorted(set(positions))
        assert positions == [i + 1 for i, token in enumerate(new.tokens) if token == BLANK]


async def contents(store: TreeStore, tree_id: str) -> list[NodeContent]:
    return await store.contents(tree_id, [node.node for node in await all_nodes(store, tree_id)])


async def test_a_tree_keeps_its_profile(redis_url: str) -> None:
    tree_id = await handed_back_early(redis_url, "gambit", {"C": 8, "K": 2, "N_max": 4})
    async with working(redis_url, running(), name="second", profile="paper") as bench:
        before = await bench.store.tree(tree_id)
        await bench.give(tree_id)
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert before.profile == record.profile == "tiny"
    assert record.parameters == before.parameters
    assert json.loads(record.parameters)["interval"] == 48


async def test_a_tree_that_the_next_worker_refuses_fails_with_its_nodes_accounted_for(redis_url: str) -> None:
    tree_id = await handed_back_early(redis_url, "gambit", GAMBIT)
    async with working(redis_url, running(), name="small", max_capacity=4) as bench:
        await bench.give(tree_id)
        record = await ended(bench.store, tree_id)
        assert bench.worker.accepts_request
    assert record.state is TreeState.FAILED
    assert record.failure is not None
    assert record.failure.code == 3  # INVALID_ARGUMENT
    field, allowed = record.failure.violations[0]
    assert field == "search.parameters.C"
    assert "from 1 to 4" in allowed
    assert record.counts["cancelled"] == record.counts["nodes"] == 8


async def test_a_tree_given_again_to_the_worker_that_still_runs_it_goes_on(redis_url: str) -> None:
    engine = paused()
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start("gambit", parameters=GAMBIT)
        await until_resident(engine, 8)
        await engine.advance(60)
        await asyncio.sleep(0.2)  # all is written: the old run will not hear of its end from the store
        # when its lease is taken to have run out, and the same worker gets it again
        await bench.store.requeue(tree_id, 1)
        before = len(engine.added)
        assert await bench.give(tree_id) == 2

        async def goes_on() -> bool:
            return len(engine.added) > before

        await eventually(goes_on)
        engine.pace(None)
        record = await ended(bench.store, tree_id)
        assert record.state is TreeState.SUCCEEDED
        assert record.epoch == 2
        assert record.counts["roots"] == 8
        # then the old run has let go of everything, and the new one of nothing too early
        assert bench.worker.accepts_request
        assert engine.resident() == []


class SlowStore(TreeStore):
    """Reads what nodes hold only when it may."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = asyncio.Event()
        self.may = asyncio.Event()

    async def contents(self, tree_id: str, nodes: Sequence[int]) -> list[NodeContent]:
        self.asked.set()
        await self.may.wait()
        return await super().contents(tree_id, nodes)


async def test_a_cancel_while_a_tree_is_loaded_leaves_no_slot_taken(redis_url: str) -> None:
    tree_id = await handed_back_early(redis_url, "self_consistency", {"N": 2})
    slow, engine = SlowStore(redis_url), running(slots=2)
    async with working(redis_url, engine, name="second", own_store=slow) as bench:
        await bench.give(tree_id)
        await slow.asked.wait()
        bench.worker.cancel(tree_id)
        slow.may.set()
        record = await ended(bench.store, tree_id)
        assert record.state is TreeState.CANCELLED
        assert record.counts["cancelled"] == 2
        assert bench.worker.accepts_request
        # the slots are good for the next
        assert (await bench.solve("self_consistency", parameters={"N": 2})).state is TreeState.SUCCEEDED
    assert not [trace for trace in engine.added if trace.startswith(tree_id)]


async def test_a_tree_handed_back_while_it_is_loaded_is_as_it_was(redis_url: str) -> None:
    tree_id = await handed_back_early(redis_url, "sart", {"N": 2})
    slow = SlowStore(redis_url)
    async with working(redis_url, running(), name="second", own_store=slow) as bench:
        before = await bench.store.tree(tree_id)
        assert before.usage["generated"] > 0
        assert before.steps > 0
        await bench.give(tree_id)
        await slow.asked.wait()
    async with working(redis_url, running(), name="third") as bench:
        after = await bench.store.tree(tree_id)
        assert (after.state, after.usage, after.steps) == (TreeState.QUEUED, before.usage, before.steps)


async def logged(caplog: pytest.LogCaptureFixture, event: str) -> None:
    async def there() -> bool:
        return event in [record.message for record in caplog.records]

    await eventually(there)


async def test_a_lease_lost_while_a_tree_is_loaded_leaves_no_slot_taken(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    tree_id = await handed_back_early(redis_url, "self_consistency", {"N": 2})
    slow, engine = SlowStore(redis_url), running(slots=2)
    async with working(redis_url, engine, name="second", own_store=slow, lease=0.3) as bench:
        await bench.give(tree_id)
        await slow.asked.wait()
        # when another worker gets it
        await bench.store.requeue(tree_id, 2)
        await bench.store.assign(tree_id, "third", LONG_LEASE)
        await logged(caplog, "lease_lost")
        slow.may.set()
        await logged(caplog, "tree_lost")
        assert bench.worker.accepts_request
        assert (await bench.solve("self_consistency", parameters={"N": 2})).state is TreeState.SUCCEEDED
        # and the other's tree is as it was
        record = await bench.store.tree(tree_id)
        assert (record.state, record.epoch, record.worker) == (TreeState.RUNNING, 3, "third")
        states = {node.state for node in await all_nodes(bench.store, tree_id)}
        assert states <= {NodeState.PENDING, NodeState.LIVE}
    assert not [trace for trace in engine.added if trace.startswith(tree_id)]
