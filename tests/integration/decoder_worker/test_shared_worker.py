"""Several searches on one worker: slots, order of service, and one that breaks alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import ScriptedTokenizer, write_trace
from decoder_worker.policies import registry
from decoder_worker.policies.base import (
    Action,
    Evict,
    Observation,
    Revive,
    SpawnRoot,
    Started,
    Step,
    StepsPassed,
    TracesFinished,
)
from decoder_worker.policies.independent import independent_step
from decoder_worker.policies.self_consistency import SelfConsistency
from decoder_worker.policies.state import NoState
from decoder_worker.tree_view import TreeView
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    all_nodes,
    drawn,
    ended,
    replayed,
    turns,
    working,
)
from tests.integration.gateway.harness import eventually
from tree_store.model import NodeState, TreeState


def few_slots() -> RecordingEngine:
    return RecordingEngine(drawn(3), ScriptedConfig(slots=4))


async def until_added(engine: RecordingEngine, count: int) -> None:
    async def there() -> bool:
        return len(engine.added) >= count

    await eventually(there)


def nodes_of(tree_id: str, *numbers: int) -> list[str]:
    return [f"{tree_id}/{number}" for number in numbers]


async def test_traces_of_all_searches_are_served_in_the_order_of_their_birth(redis_url: str) -> None:
    engine = few_slots()
    engine.pace(0)
    async with working(redis_url, engine) as bench:
        first = await bench.start("self_consistency", parameters={"N": 6})
        await until_added(engine, 4)
        # a new request is taken only when a slot is free and no trace is pending
        assert not bench.worker.accepts_request
        second = await bench.start("self_consistency", parameters={"N": 6})

        async def waits() -> bool:
            return bool(await all_nodes(bench.store, second))

        await eventually(waits)
        engine.pace(None)
        for tree_id in (first, second):
            record = await ended(bench.store, tree_id)
            assert record.state is TreeState.SUCCEEDED
            assert record.counts["finished"] == 6
        assert engine.added == [*nodes_of(first, *range(1, 7)), *nodes_of(second, *range(1, 7))]
        assert engine.most == 4
        assert bench.worker.accepts_request


async def test_two_searches_interleaved_keep_their_accounts_and_the_slots(redis_url: str) -> None:
    engine = RecordingEngine(drawn(5), ScriptedConfig(slots=10, kv_blocks=120, max_context=1600))
    asked = {"C": 8, "K": 2, "interval": 8, "warmup": 40, "N_max": 8}
    async with working(redis_url, engine) as bench:
        trees = [await bench.start("gambit", parameters=asked) for _ in range(2)]
        records = [await ended(bench.store, tree_id) for tree_id in trees]
    for record in records:
        assert record.state is TreeState.SUCCEEDED
        assert record.counts["branches"] > 0
    # both were served before either had ended
    place = {tree_id: [i for i, t in enumerate(engine.added) if t.startswith(tree_id)] for tree_id in trees}
    assert place[trees[1]][0] < place[trees[0]][-1]
    assert engine.most == 10
    assert engine.resident() == []


async def test_an_add_that_still_queues_when_its_search_is_cancelled_never_reaches_the_engine(
    redis_url: str,
) -> None:
    engine = few_slots()
    engine.pace(0)
    engine.gate.clear()
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start("self_consistency", parameters={"N": 4})
        # given one add under way and three behind it
        await until_added(engine, 1)
        bench.worker.cancel(tree_id)
        engine.gate.set()
        record = await ended(bench.store, tree_id)
        await turns()
        assert record.state is TreeState.CANCELLED
        assert engine.added == nodes_of(tree_id, 1)
        # the one that was under way is taken out again
        engine.pace(1)
        await turns()
        assert engine.resident() == []
        assert engine.generated == 0
        assert bench.worker.accepts_request


class Fickle(SelfConsistency):
    """Spawns a second trace after 5 engine steps, evicts the first after 6 and revives it after 7."""

    name = "fickle"
    check_every = 1
    capacity = 2
    passed = 0

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        if not isinstance(observation, StepsPassed):
            return independent_step(1, view, observation)
        self.passed += observation.steps
        orders: dict[int, Action] = {5: SpawnRoot(), 6: Evict(1), 7: Revive(1)}
        return Step(state, (orders[self.passed],) if self.passed in orders else ())


async def test_what_is_on_its_way_of_a_trace_that_left_is_not_taken_for_its_next_life(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "POLICIES", {**registry.POLICIES, "fickle": Fickle})
    scripts = [write_trace([(20, 0.5)] * 3, answer) for answer in ("29", "52")]
    engine = RecordingEngine(replayed(*scripts), ScriptedConfig(slots=4))
    engine.pace(0)
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start("fickle", parameters={"N": 2})
        await until_added(engine, 1)
        # the engine takes its time with the second, while it goes on with the first: its abort has to wait
        engine.gate.clear()
        await engine.advance(12)
        assert engine.added == nodes_of(tree_id, 1, 2)
        engine.gate.set()
        await turns()
        assert engine.added == nodes_of(tree_id, 1, 2, 1)
        engine.pace(None)
        record = await ended(bench.store, tree_id)
        assert record.state is TreeState.SUCCEEDED
        contents = await bench.store.contents(tree_id, [1, 2])
    assert [list(content.tokens) for content in contents] == scripts


# ---- one search breaks


class Brittle(SelfConsistency):
    """Raises when a trace of it finishes."""

    name = "brittle"

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        if isinstance(observation, TracesFinished):
            raise ZeroDivisionError("brittle")
        return independent_step(self.parameters.N, view, observation)


class Stillborn(SelfConsistency):
    """Raises when it is to begin."""

    name = "stillborn"

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        raise ZeroDivisionError("stillborn")


class Idle(SelfConsistency):
    """Neither ends nor goes on when its only trace has finished."""

    name = "idle"

    def step(self, state: NoState, view: TreeView, observation: Observation) -> Step[NoState]:
        return Step(state, (SpawnRoot(),) if isinstance(observation, Started) else ())


class BrittleTokenizer(ScriptedTokenizer):
    """Cannot read the answer 8, as a tokenizer that meets a token beyond its vocabulary."""

    def decode(self, tokens: Sequence[int]) -> str:
        text = super().decode(tokens)
        if "{8}" in text:
            raise IndexError("no such token")
        return text


@pytest.mark.parametrize("policy", ["brittle", "stillborn", "idle"])
async def test_a_policy_that_breaks_fails_its_own_search_only(
    redis_url: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {kind.name: kind for kind in (Brittle, Stillborn, Idle)}
    monkeypatch.setattr(registry, "POLICIES", {**registry.POLICIES, **broken})
    async with working(redis_url, few_slots()) as bench:
        await assert_only_one_fails(bench, policy)


async def test_a_tokenizer_that_breaks_fails_that_search_only(redis_url: str) -> None:
    engine = RecordingEngine(
        drawn(0, answer=lambda random, quality: "8" if random.random() < 0.2 else "29"),
        ScriptedConfig(slots=4),
    )
    engine.tokenizer = BrittleTokenizer()
    async with working(redis_url, engine) as bench:
        # the first two traces of a tree end in 29, one of the next in 8
        broken, good = [await bench.start("self_consistency", parameters={"N": n}) for n in (12, 2)]
        record = await ended(bench.store, broken)
        assert record.state is TreeState.FAILED
        assert record.failure is not None
        assert record.failure.reason == "SEARCH_FAILED"
        record = await ended(bench.store, good)
        assert record.state is TreeState.SUCCEEDED
        assert record.outcome is not None
        assert record.outcome.answer == "29"
        await turns()
        assert engine.resident() == []


async def assert_only_one_fails(bench: Bench, policy: str) -> None:
    good = await bench.start("self_consistency", parameters={"N": 6})
    broken = await bench.solve(policy, parameters={"N": 3})
    assert broken.state is TreeState.FAILED
    assert broken.failure is not None
    assert broken.failure.code == 13  # INTERNAL
    assert broken.failure.reason == "SEARCH_FAILED"
    other = await ended(bench.store, good)
    assert other.state is TreeState.SUCCEEDED
    assert other.counts[NodeState.FINISHED] == 6
    # and the worker goes on
    assert (await bench.solve("vanilla")).state is TreeState.SUCCEEDED
    assert bench.worker.accepts_request
