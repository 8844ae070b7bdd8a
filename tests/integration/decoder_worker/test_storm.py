"""Searches that hold, evict, revive and prune at once on one engine with too few slots and too little KV, and
change their worker meanwhile: whatever comes, slots, engine and accounts stay right."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoder_worker.engine.base import StepBatch
from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import BLANK
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    all_nodes,
    assert_each_token_counts_once,
    assert_texts_fit,
    drawn,
    ended,
    feed,
    paths,
    turns,
    working,
)
from tree_store.model import NodeState, TreeState

POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("rebase", {"W": 8}),
    ("gambit", {"C": 10, "K": 3, "interval": 8, "warmup": 20, "N_max": 10, "high_water": 0.5}),
    (
        "gambit",
        {
            "C": 10,
            "K": 2,
            "interval": 12,
            "warmup": 20,
            "N_max": 8,
            "high_water": 0.6,
            "revive_ghosts": True,
            "revive_interval": 1,
            "revive_margin": 0.02,
        },
    ),
    ("step", {"N": 8, "high_water": 0.6}),
    ("sart", {"N": 8, "M": 3, "interval": 7}),
]


class CheckedEngine(RecordingEngine):
    """Never has more traces than slots, and none under a name that the worker does not know to be live."""

    def step(self) -> StepBatch:
        assert len(self._traces) <= self.config.slots
        return super().step()


@given(
    chosen=st.lists(st.sampled_from(POLICIES), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    slots=st.integers(2, 12),
    kv_blocks=st.integers(100, 200),
    spans=st.lists(st.integers(1, 150), max_size=3),
)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_comes_the_accounts_add_up(
    redis_url: str,
    chosen: list[tuple[str, dict[str, Any]]],
    seed: int,
    slots: int,
    kv_blocks: int,
    spans: list[int],
) -> None:
    config = ScriptedConfig(slots=slots, kv_blocks=kv_blocks, max_context=1600)

    async def in_time() -> None:
        async with asyncio.timeout(60):
            await storm(redis_url, chosen, seed, config, spans)

    asyncio.run(in_time())


async def storm(
    redis_url: str,
    chosen: list[tuple[str, dict[str, Any]]],
    seed: int,
    config: ScriptedConfig,
    spans: list[int],
) -> None:
    """spans: engine steps after which the searches change their worker."""
    trees: list[str] = []
    for number, span in enumerate([*spans, None]):
        engine = CheckedEngine(drawn(seed), config)
        engine.pace(span)
        async with working(redis_url, engine, name=f"worker {number}") as bench:
            if not trees:
                trees = [await bench.start(policy, parameters=asked) for policy, asked in chosen]
            else:
                for tree_id in trees:
                    if (await bench.store.tree(tree_id)).state is TreeState.QUEUED:
                        await bench.give(tree_id)
            if span is not None:
                while engine.step_number < span and (engine.busy or await any_runs(bench, trees)):  # noqa: ASYNC110
                    await asyncio.sleep(0)
                continue
            for tree_id, (policy, _) in zip(trees, chosen, strict=True):
                await assert_right(bench, tree_id, policy)
            await turns()
            assert not engine.busy
            assert bench.worker.accepts_request


async def any_runs(bench: Bench, trees: list[str]) -> bool:
    return any([not (await bench.store.tree(tree_id)).state.terminal for tree_id in trees])


async def assert_right(bench: Bench, tree_id: str, policy: str) -> None:
    record = await ended(bench.store, tree_id)  # the accounts
    assert record.state is TreeState.SUCCEEDED
    await assert_each_token_counts_once(bench.store, record)
    await assert_texts_fit(bench.store, tree_id)
    walked = paths(await feed(bench.store, tree_id))
    assert any("held" in path for path in walked.values()) == (policy == "rebase")
    if policy == "rebase":
        nodes = await all_nodes(bench.store, tree_id)
        contents = await bench.store.contents(tree_id, [node.node for node in nodes])
        for node, content in zip(nodes, contents, strict=True):
            # each boundary has been held at, and nothing passed one that was not
            boundaries = [i for i, token in enumerate(content.tokens, 1) if token == BLANK]
            assert [thought.position - node.branch_position for thought in content.thoughts] == boundaries
            if node.state is NodeState.PRUNED:
                assert boundaries[-1] == node.unique_tokens
