"""The policies of the papers through the whole worker: each acts as it says, and its tree adds up."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import BLANK, write_trace
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    ScriptedScoring,
    all_nodes,
    assert_each_token_counts_once,
    assert_texts_fit,
    drawn,
    ended,
    feed,
    parents,
    paths,
    replayed,
    rounds,
    turns,
    working,
)
from tests.integration.gateway.harness import eventually
from tree_store.events import Event
from tree_store.model import NodeState, TreeRecord, TreeState

BLOCK = ScriptedConfig().block_size
AGAIN = ["pending", "live"]


def engine_of(seed: int, *, slots: int = 32, kv_blocks: int = 2000) -> RecordingEngine:
    return RecordingEngine(drawn(seed), ScriptedConfig(slots=slots, kv_blocks=kv_blocks, max_context=1600))


async def searched(bench: Bench, policy: str, **parameters: object) -> tuple[TreeRecord, list[Event]]:
    """A whole search, with what holds for each."""
    record = await bench.solve(policy, parameters=parameters)
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert record.outcome.answer is not None
    assert record.outcome.ended_by == ""
    await assert_each_token_counts_once(bench.store, record)
    await assert_texts_fit(bench.store, record.tree_id)
    await turns()
    assert bench.engine.resident() == []
    assert bench.worker.accepts_request
    return record, await feed(bench.store, record.tree_id)


# ---- sart


@pytest.mark.parametrize("seed", range(3))
async def test_sart_prunes_by_reward_and_stops_at_m(redis_url: str, seed: int) -> None:
    engine = engine_of(seed)
    async with working(redis_url, engine) as bench:
        record, events = await searched(bench, "sart", N=16, M=6, alpha=0.5, interval=40)
    counts = record.counts
    assert counts["roots"] == counts["nodes"] == 16
    assert counts["pruned"] > 0
    assert counts["finished"] >= 6 or counts["finished"] + counts["pruned"] == 16
    # every check is told of, and one comes every T steps
    held = rounds(events)
    assert [node for pruned, _ in held for node in pruned] == [
        int(e.fields["node"]) for e in events if e.kind == "node" and e.fields["to"] == "pruned"
    ]
    assert len(held) == engine.step_number // 40
    # not more than β before the first completion
    first = next(i for i, e in enumerate(events) if e.kind == "node" and e.fields["to"] == "finished")
    before = [e for e in events[:first] if e.kind == "node" and e.fields["to"] == "pruned"]
    assert len(before) <= 8


async def test_sart_checks_every_t_steps_with_the_phases_in_order(redis_url: str) -> None:
    """N = 5, M = 2, α = 0.5, β = 1, T = 20. Thoughts of ten tokens, whose row comes a step later."""
    engine = RecordingEngine(
        replayed(
            write_trace([(10, 0.9)] * 30, "1"),
            write_trace([(10, 0.4)] * 30, "2"),
            write_trace([(10, 0.3)] * 30, "3"),
            write_trace([(10, 0.8)] * 2, "29"),  # completes at its 31st token: 20, the answer's 10, the end
            write_trace([(10, 0.7)] * 30, "5"),
        )
    )
    engine.pace(0)
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start(
            "sart", parameters={"N": 5, "M": 2, "alpha": 0.5, "beta": 1, "interval": 20}
        )

        async def added() -> bool:
            return len(engine.added) == 5

        await eventually(added)
        await engine.advance(19)
        assert len(engine.resident()) == 5
        await engine.advance(1)
        # explore: below α are 2 and 3, but β = 1: the lowest
        assert [name.rpartition("/")[2] for name in engine.resident()] == ["1", "2", "4", "5"]
        await engine.advance(19)
        # 4 has completed meanwhile; the check does not come before its time
        assert [name.rpartition("/")[2] for name in engine.resident()] == ["1", "2", "5"]
        await engine.advance(1)
        # exploit: below α′ = 0.8 are 2 and 5; at most N − 1 = 4
        assert [name.rpartition("/")[2] for name in engine.resident()] == ["1"]
        engine.pace(None)
        record = await ended(bench.store, tree_id)
        events = await feed(bench.store, tree_id)
    assert rounds(events)[:2] == [([3], []), ([2, 5], [])]
    assert all(held == ([], []) for held in rounds(events)[2:])
    assert record.outcome is not None
    assert record.outcome.answer == "1"  # the completed one of the highest reward
    assert (record.counts["finished"], record.counts["pruned"], record.counts["cancelled"]) == (2, 3, 0)


@pytest.mark.parametrize("seed", range(2))
async def test_sart_no_prune_stops_at_m(redis_url: str, seed: int) -> None:
    async with working(redis_url, engine_of(seed, slots=5)) as bench:
        record, events = await searched(bench, "sart_no_prune", N=12, M=4)
    assert record.counts["pruned"] == record.counts["branches"] == 0
    # the M-th completion ends it; others may have come in the same step
    assert 4 <= record.counts["finished"] < 8
    assert record.counts["finished"] + record.counts["cancelled"] == 12
    assert rounds(events) == []


# ---- step


@pytest.mark.parametrize("seed", range(3))
async def test_step_prunes_only_under_pressure(redis_url: str, seed: int) -> None:
    async with working(redis_url, engine_of(seed, kv_blocks=150)) as bench:
        squeezed, events = await searched(bench, "step", N=16)
    assert squeezed.counts["pruned"] > 0
    assert squeezed.counts["branches"] == squeezed.counts["evictions"] == squeezed.counts["cancelled"] == 0
    assert squeezed.counts["finished"] + squeezed.counts["pruned"] == 16
    assert all("ghost" not in path for path in paths(events).values())
    async with working(redis_url, engine_of(seed)) as bench:
        roomy, _ = await searched(bench, "step", N=16)
    assert roomy.counts["pruned"] == 0


# ---- rebase


@pytest.mark.parametrize(("seed", "slots"), [(0, 32), (1, 32), (2, 32), (3, 5)])
async def test_rebase_expands_thought_by_thought(redis_url: str, seed: int, slots: int) -> None:
    width = 12
    engine = engine_of(seed, slots=slots)
    async with working(redis_url, engine) as bench:
        record, events = await searched(bench, "rebase", W=width)
        nodes = {node.node: node for node in await all_nodes(bench.store, record.tree_id)}
        contents = await bench.store.contents(record.tree_id, list(nodes))
    assert record.counts["branches"] > 0
    assert record.counts["pruned"] > 0
    assert record.counts["held"] == 0
    # a trace is held at each of its boundaries, but where it ended: nothing is decoded beyond one unasked
    walked = paths(events)
    for number, content in zip(nodes, contents, strict=True):
        path = walked[number]
        holds = path.count("held")
        assert path[: 3 * holds] == ["pending", "live", "held"] * holds
        assert path[3 * holds :] in ([*AGAIN, "finished"], ["pruned"], [*AGAIN, "cancelled"], ["cancelled"])
        assert len(content.thoughts) == holds
        if nodes[number].state is NodeState.PRUNED:
            assert content.tokens[-1] == BLANK
            assert content.thoughts[-1].position == nodes[number].total_tokens
    assert record.usage["generated"] == engine.generated
    # branches are born where their held parent stands, and before it goes on
    assert_born_of_the_held(events)
    # W = held + finished in each round, so that as many are branched as are pruned
    told = [event for event in events if event.kind == "round"]
    held = [int(event.fields["capacity_count"]) for event in told]
    assert held[0] == width
    assert held == sorted(held, reverse=True)
    assert all(event.fields["live"] == "0" for event in told)
    assert all(len(pruned) == len(branched) for pruned, branched in rounds(events))
    assert record.counts["finished"] == width
    # with room for all, what a held trace had stays in the cache, but for the last block of each
    adds = len(engine.added) - width
    assert adds > width
    assert record.usage["recomputed"] <= BLOCK * adds


def assert_born_of_the_held(events: list[Event]) -> None:
    state: dict[int, str] = {}
    for event in events:
        if event.kind == "node":
            number = int(event.fields["node"])
            if "parent" in event.fields:
                assert state[int(event.fields["parent"])] == "held"
            state[number] = event.fields["to"]


async def test_rebase_waits_for_the_scores_of_all(redis_url: str) -> None:
    engine, scoring = engine_of(5), ScriptedScoring(holding=True)
    async with working(redis_url, engine, scoring=scoring) as bench:
        tree_id = await bench.start("rebase", parameters={"W": 6})

        async def all_are_held() -> bool:
            return (await bench.store.tree(tree_id)).counts["held"] == 6

        await eventually(all_are_held)
        last = scoring.held.pop()
        scoring.release()
        await turns()
        scoring.holding = True
        assert len(engine.added) == 6
        assert rounds(await feed(bench.store, tree_id)) == []
        scoring.held.append(last)
        scoring.release()
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.SUCCEEDED
    assert record.counts["branches"] > 0


async def test_rebase_with_rows_that_are_no_numbers_goes_on_without_branches(redis_url: str) -> None:
    engine = RecordingEngine(replayed(*[write_trace([(8, float("nan"))] * 4, "29")] * 4))
    async with working(redis_url, engine) as bench:
        record = await bench.solve("rebase", parameters={"W": 4})
    assert record.outcome is not None
    assert record.outcome.answer == "29"
    assert record.counts["finished"] == record.counts["nodes"] == 4
    assert record.counts["rounds"] == 5  # one after each thought, and one that finds nobody


# ---- gambit's ghosts


@pytest.mark.parametrize("seed", range(3))
async def test_gambit_revives_ghosts_when_there_is_room_again(redis_url: str, seed: int) -> None:
    engine = engine_of(seed, kv_blocks=260)
    asked = {"C": 24, "K": 3, "interval": 32, "warmup": 60, "N_max": 24, "high_water": 0.7}
    asked |= {"revive_ghosts": True, "revive_interval": 10, "revive_margin": 0.1}
    async with working(redis_url, engine) as bench:
        record, events = await searched(bench, "gambit", **asked)
    walked = paths(events)
    revived = Counter(
        number for number, path in walked.items() for a, b in pairwise(path) if (a, b) == ("ghost", "pending")
    )
    assert record.counts["evictions"] > 0
    assert revived.total() > 0
    told = [e for e in events if e.kind == "node" and e.fields.get("reason") == "revived"]
    assert Counter(int(e.fields["node"]) for e in told) == revived
    # they come back by prefill and count as before
    adds = Counter(int(name.rpartition("/")[2]) for name in engine.added)
    assert all(adds[number] >= path.count("live") for number, path in walked.items())
    assert record.usage["recomputed"] > 0
    assert record.counts["branches"] <= record.counts["pruned"] + record.counts["finished"]
    assert len(parents(events)) == record.counts["branches"] > 0
