"""A worker takes over in the middle, under every policy: what it does then is what the first would have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import Drawn
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    ScriptedScoring,
    all_nodes,
    assert_each_token_counts_once,
    assert_texts_fit,
    ended,
    feed,
    parents,
    paths,
    rounds,
    turns,
    working,
)
from tests.integration.gateway.harness import eventually
from tree_store.model import NodeState, TreeRecord, TreeState
from tree_store.store import TreeStore

ROOMY = ScriptedConfig(slots=24, kv_blocks=4000, max_context=1600)

ASKED: Mapping[str, Mapping[str, Any]] = {
    "vanilla": {},
    "self_consistency": {"N": 12},
    "best_of_n": {"N": 12},
    "gambit": {"C": 12, "K": 3, "interval": 12, "warmup": 40, "N_max": 12},
    "sart": {"N": 16, "M": 6, "alpha": 0.5, "interval": 40},
    "sart_no_prune": {"N": 12, "M": 4},
    "step": {"N": 12},
    "rebase": {"W": 12},
}


@dataclass
class Written:
    """Traces that go on as they would have, on whichever engine they are added again."""

    source: Drawn
    traces: dict[str, tuple[int, list[int]]] = field(default_factory=dict)

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        number = trace_id.rpartition("/")[2]
        if number not in self.traces:
            self.traces[number] = len(tokens), list(self.source.continuation(number, tokens))
        start, own = self.traces[number]
        return iter(own[len(tokens) - start :])


def exact() -> ScriptedScoring:
    """Scores that come back from the store to the last bit."""
    return ScriptedScoring(exact=True)


def paused(source: Written, config: ScriptedConfig = ROOMY) -> RecordingEngine:
    engine = RecordingEngine(source, config)
    engine.pace(0)
    return engine


async def has_begun(engine: RecordingEngine) -> None:
    async def there() -> bool:
        return bool(engine.added)

    await eventually(there)
    await turns()


async def decode(engine: RecordingEngine, steps: int) -> None:
    """So many steps, or fewer when the engine has nothing to decode any more."""
    for _ in range(steps):
        if not engine.busy:
            return
        await engine.advance()


@dataclass(frozen=True)
class Course:
    """What a search did, but for what belongs to its workers."""

    rounds: list[tuple[list[int], list[int]]]
    parents: dict[int, int]
    nodes: dict[int, tuple[NodeState, int, float | None, str | None]]
    votes: dict[str, tuple[float, frozenset[int]]]
    answer: str | None


async def course(store: TreeStore, record: TreeRecord) -> Course:
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    events = await feed(store, record.tree_id)
    paths(events)  # one after the other
    nodes = await all_nodes(store, record.tree_id)
    await assert_texts_fit(store, record.tree_id)
    return Course(
        rounds(events),
        parents(events),
        {n.node: (n.state, n.total_tokens, n.mean_score, n.answer) for n in nodes},
        {v.answer: (v.weight, frozenset(v.nodes)) for v in record.outcome.votes},
        record.outcome.answer,
    )


async def undisturbed(
    redis_url: str, policy: str, seed: int, config: ScriptedConfig = ROOMY
) -> tuple[Course, int]:
    """The search on one worker, and the engine steps that it takes."""
    engine = paused(Written(Drawn(seed)), config)
    async with working(redis_url, engine, scoring=exact()) as bench:
        tree_id = await bench.start(policy, parameters=dict(ASKED[policy]))
        await has_begun(engine)
        engine.pace(None)
        record = await ended(bench.store, tree_id)
        return await course(bench.store, record), engine.step_number


@pytest.mark.parametrize("policy", ASKED)
async def test_after_a_hand_back_the_next_worker_goes_on_as_the_first_would_have(
    redis_url: str, policy: str
) -> None:
    expected, steps = await undisturbed(redis_url, policy, 1)
    for share in (0.3, 0.7):
        written = Written(Drawn(1))
        first, second = paused(written), paused(written)
        async with working(redis_url, first, scoring=exact()) as bench:
            tree_id = await bench.start(policy, parameters=dict(ASKED[policy]))
            await has_begun(first)
            await decode(first, round(steps * share))
        async with working(redis_url, second, name="second", scoring=exact()) as bench:
            assert (await bench.store.tree(tree_id)).state is TreeState.QUEUED
            await bench.give(tree_id)
            await has_begun(second)
            second.pace(None)
            record = await ended(bench.store, tree_id)
            await assert_each_token_counts_once(bench.store, record)
            assert await course(bench.store, record) == expected
        assert record.worker == "second"
        assert second.added
        # where a trace was to be held at a boundary whose row had not come, a token beyond it is dropped
        surplus = first.generated + second.generated - record.usage["generated"]
        assert 0 <= surplus <= (12 if policy == "rebase" else 0)


@pytest.mark.parametrize("when", ["row", "score"])
@pytest.mark.parametrize("share", [0.1, 0.35, 0.6, 0.9])
async def test_rebase_decides_at_each_boundary_whatever_its_workers_come_to(
    redis_url: str, share: float, when: str
) -> None:
    """The first one dies: what it had beyond the last boundaries is lost, and of a held trace perhaps the
    score that was on its way. Its thought is decoded, or its row asked for, again; nothing is skipped."""
    expected, steps = await undisturbed(redis_url, "rebase", 3)
    written, scoring = Written(Drawn(3)), exact()
    first, second = paused(written), paused(written)
    async with working(redis_url, first, scoring=scoring) as bench:
        tree_id = await bench.start("rebase", parameters=dict(ASKED["rebase"]))
        await has_begun(first)
        await decode(first, round(steps * share))
        scoring.holding = when == "score"
        await decode(first, 25)
        before = await all_stored(bench, tree_id)
        # its lease runs out, and another one gets the tree
        await bench.store.requeue(tree_id, 1)
        async with working(redis_url, second, name="second", scoring=exact()) as other:
            assert await other.give(tree_id) == 2
            await has_begun(second)
            second.pace(None)
            record = await ended(other.store, tree_id)
            found = await course(other.store, record)
    assert before["held"] > 0 or when == "row"
    assert found == expected


async def all_stored(bench: Bench, tree_id: str) -> Mapping[str, int]:
    """The stored counters once they are those of the worker's own view."""
    search = bench.worker._trees[tree_id].search
    assert search is not None
    view = search.view

    async def equal() -> bool:
        counts = (await bench.store.tree(tree_id)).counts
        return all(counts[state] == view.count(state) for state in NodeState)

    await eventually(equal)
    return (await bench.store.tree(tree_id)).counts


async def test_held_traces_stay_held_until_the_policy_decides(redis_url: str) -> None:
    """Some are held, others not, when the worker stops."""
    written, scoring = Written(Drawn(4)), exact()
    first = paused(written)
    async with working(redis_url, first, scoring=scoring) as bench:
        tree_id = await bench.start("rebase", parameters={"W": 6})
        await has_begun(first)
        await first.advance()
        while len(first.resident()) > 2:
            await first.advance()
        left = len(first.resident())
        assert left
    second = paused(written)
    async with working(redis_url, second, name="second", scoring=exact()) as bench:
        assert (await bench.store.tree(tree_id)).counts["held"] == 6 - left
        await bench.give(tree_id)
        await has_begun(second)
        assert len(second.added) == left
        second.pace(None)
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED


async def test_when_all_are_held_the_next_worker_decides_at_once(redis_url: str) -> None:
    written, scoring = Written(Drawn(4)), ScriptedScoring(holding=True)
    first = paused(written)
    async with working(redis_url, first, scoring=scoring) as bench:
        tree_id = await bench.start("rebase", parameters={"W": 6})
        await has_begun(first)
        while first.busy:
            await first.advance()
        # its scores come while it hands back: nobody is asked any more
        bench.stop.set()
        await turns()
        scoring.release()
    second = paused(written)
    async with working(redis_url, second, name="second", scoring=exact()) as bench:
        record = await bench.store.tree(tree_id)
        assert (record.counts["held"], record.counts["thoughts"], record.counts["rounds"]) == (6, 6, 0)
        await bench.give(tree_id)
        await has_begun(second)
        assert len(second.added) == 6
        second.pace(None)
        record = await ended(bench.store, tree_id)
        held = rounds(await feed(bench.store, tree_id))
    assert record.state is TreeState.SUCCEEDED
    assert len(held[0][0]) == len(held[0][1]) > 0


@pytest.mark.parametrize("policy", ["gambit", "sart", "step", "rebase"])
@pytest.mark.parametrize("seed", range(2))
async def test_a_search_that_changes_hands_under_pressure_adds_up(
    redis_url: str, policy: str, seed: int
) -> None:
    config = ScriptedConfig(slots=10, kv_blocks=150, max_context=1600)
    asked = dict(ASKED[policy])
    if policy == "gambit":
        asked |= {"revive_ghosts": True, "revive_interval": 10, "high_water": 0.8, "revive_margin": 0.1}
    written = Written(Drawn(seed))
    tree_id, generated = "", 0
    for number in range(4):
        engine = paused(written, config)
        async with working(redis_url, engine, name=f"worker {number}", scoring=exact()) as bench:
            if not tree_id:
                tree_id = await bench.start(policy, parameters=asked)
            else:
                await bench.give(tree_id)
            await has_begun(engine)
            if number < 3:
                await decode(engine, 60)
                generated += engine.generated
                continue
            engine.pace(None)
            record = await ended(bench.store, tree_id)
            await assert_each_token_counts_once(bench.store, record)
            await course(bench.store, record)
    assert record.epoch == 4
    assert record.counts["pruned"] > 0
    if policy == "gambit":
        assert record.counts["evictions"] > 0
