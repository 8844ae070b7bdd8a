"""Searches scored by a scorer that keeps a history of each trace, served by real prm workers."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from decoder_worker.engine.scripted_traces import Drawn
from decoder_worker.scoring.client import BoundaryRow, Deliver, ScoredRow, ScoringClient
from decoder_worker.scoring.wire import scoring_id
from prm_worker.scorer_file import Metadata
from prm_worker.scorers.base import Float32Array
from prm_worker.scorers.incremental import SequenceScorer
from prm_worker.scorers.sequence import net_of
from tests.integration.decoder_worker.harness import all_nodes, ended, working
from tests.integration.decoder_worker.test_policies_handover import (
    ASKED,
    ROOMY,
    Written,
    decode,
    has_begun,
    paused,
)
from tests.integration.prm_worker.serving import served
from tests.unit.prm_worker.weights import sequence_weights
from tree_store.model import TreeRecord, TreeState
from tree_store.store import TreeStore

HIDDEN = ROOMY.hidden_size
WIDTH = 32
TRAINED_FOR = Metadata("sequence", HIDDEN, "scripted", "blank_line")
HALF = 2e-3  # what keys and values in half precision cost at this width and these weights


class RowsKept(ScoringClient):
    """Keeps the rows that it was given: of each node, by the index of the thought among its own. under_way:
    how many of them have not come back."""

    def __init__(self, targets: str, deadline: float = 60.0) -> None:
        super().__init__(targets, "scripted", "blank_line", deadline, hidden_size=HIDDEN)
        self.given: dict[int, dict[int, Float32Array]] = defaultdict(dict)
        self.under_way = 0

    def submit(self, rows: Sequence[BoundaryRow], deliver: Deliver) -> None:
        for row in rows:
            self.given[row.node][row.thought] = np.frombuffer(row.row.data, "<f4")
        self.under_way += len(rows)

        def back(scored: Sequence[ScoredRow]) -> None:
            self.under_way -= len(scored)
            deliver(scored)

        super().submit(rows, back)


@asynccontextmanager
async def client_of(*targets: str, deadline: float = 60.0) -> AsyncIterator[RowsKept]:
    client = RowsKept(",".join(targets), deadline)
    await client.info()
    try:
        yield client
    finally:
        await client.close()


@dataclass
class Prm:
    """A prm worker that can be stopped."""

    target: str
    scorer: SequenceScorer
    stack: AsyncExitStack

    async def stop(self) -> None:
        await self.stack.aclose()


@asynccontextmanager
async def prm_worker(thoughts: int = 4096, weights_seed: int = 0) -> AsyncIterator[Prm]:
    """thoughts: that its cache has room for."""
    async with AsyncExitStack() as stack:
        weights = sequence_weights(HIDDEN, WIDTH, seed=weights_seed)
        scorer = SequenceScorer(weights, cache_bytes=thoughts * 2 * WIDTH * 2)
        own = await stack.enter_async_context(served(TRAINED_FOR, scorer=scorer))
        yield Prm(own.target, scorer, stack)


async def assert_scored_as_a_whole(
    store: TreeStore, record: TreeRecord, given: dict[int, dict[int, Float32Array]]
) -> int:
    """Each score is what the network gives for all scored thoughts of the trace so far; returns how many."""
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert not record.outcome.degraded
    assert record.scorer == "sequence"
    net = net_of(sequence_weights(HIDDEN, WIDTH))
    nodes = await all_nodes(store, record.tree_id)
    contents = await store.contents(record.tree_id, [node.node for node in nodes])
    sequences: dict[int, list[Float32Array]] = {}
    compared = 0
    for node, content in zip(nodes, contents, strict=True):
        inherited: list[Float32Array] = []
        if node.parent is not None:
            parent = contents[node.parent - 1]
            shared = [t for t in parent.thoughts if t.position <= node.branch_position]
            own = sum(t.score is not None for t in parent.thoughts)
            cut = own - sum(t.score is not None for t in shared)
            inherited = sequences[node.parent][: len(sequences[node.parent]) - cut]
        scored = [(i, t.score) for i, t in enumerate(content.thoughts) if t.score is not None]
        assert len(content.history) == 2 * WIDTH * len(scored)
        sequences[node.node] = [*inherited, *(given[node.node][i] for i, _ in scored)]
        if not scored:
            continue
        rows = torch.from_numpy(np.stack(sequences[node.node]))[None]
        with torch.inference_mode():
            logits = net(rows, torch.tensor([rows.shape[1]]))[0]
        expected = torch.sigmoid(logits)[len(inherited) :].tolist()
        assert [score for _, score in scored] == pytest.approx(expected, abs=HALF)
        compared += len(scored)
    return compared


@pytest.mark.parametrize("policy", ["gambit", "rebase", "step"])
async def test_scores_are_those_of_whole_traces(redis_url: str, policy: str) -> None:
    async with prm_worker() as prm, client_of(prm.target) as client:
        engine = paused(Written(Drawn(2)))
        async with working(redis_url, engine, scoring=client) as bench:
            tree_id = await bench.start(policy, parameters=dict(ASKED[policy]))
            await has_begun(engine)
            engine.pace(None)
            record = await ended(bench.store, tree_id)
            assert await assert_scored_as_a_whole(bench.store, record, client.given) > 40
        assert client.stats.retries == 0


async def ended_in_step(store: TreeStore, engine: Any, client: RowsKept, tree_id: str) -> TreeRecord:
    """The tree at its end. Scores are never far behind what is decoded: else a slow prm worker gets a trace
    in one call, and nothing of it can have been forgotten."""
    while not (await store.tree(tree_id)).state.terminal:
        await decode(engine, 10)
        async with asyncio.timeout(30):
            while client.under_way and not (await store.tree(tree_id)).state.terminal:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
    return await ended(store, tree_id)


async def test_what_a_prm_worker_has_forgotten_is_sent_again(redis_url: str) -> None:
    """Its cache holds the thoughts of a few traces only."""
    async with prm_worker(thoughts=36) as prm, client_of(prm.target) as client:
        engine = paused(Written(Drawn(2)))
        async with working(redis_url, engine, scoring=client) as bench:
            tree_id = await bench.start("gambit", parameters=dict(ASKED["gambit"]))
            await has_begun(engine)
            record = await ended_in_step(bench.store, engine, client, tree_id)
            assert record.counts["branches"] > 5
            assert await assert_scored_as_a_whole(bench.store, record, client.given) > 40
        assert client.stats.histories > 10


async def test_another_worker_goes_on_with_the_history_that_is_stored(redis_url: str) -> None:
    """At a prm worker that has never heard of the tree."""
    written = Written(Drawn(2))
    first, second = paused(written), paused(written)
    async with prm_worker() as prm, client_of(prm.target) as client:
        async with working(redis_url, first, scoring=client) as bench:
            tree_id = await bench.start("gambit", parameters=dict(ASKED["gambit"]))
            await has_begun(first)
            await decode(first, 260)
        given = client.given
    async with prm_worker() as prm, client_of(prm.target) as client:
        async with working(redis_url, second, name="second", scoring=client) as bench:
            nodes = await all_nodes(bench.store, tree_id)
            contents = await bench.store.contents(tree_id, [node.node for node in nodes])
            assert sum(len(content.history) for content in contents) > 20 * 2 * WIDTH
            await bench.give(tree_id)
            await has_begun(second)
            second.pace(None)
            record = await ended(bench.store, tree_id)
            for node, rows in client.given.items():
                given[node] |= rows
            await assert_scored_as_a_whole(bench.store, record, given)
        assert client.stats.histories > 0


@pytest.mark.parametrize("policy", ["gambit", "rebase"])
async def test_scores_of_two_scorers_do_not_mix(redis_url: str, policy: str) -> None:
    """The second worker has another scorer: nothing is scored any more, and the search says so."""
    written = Written(Drawn(2))
    first, second = paused(written), paused(written)
    async with (
        prm_worker() as prm,
        client_of(prm.target) as client,
        working(redis_url, first, scoring=client) as bench,
    ):
        tree_id = await bench.start(policy, parameters=dict(ASKED[policy]))
        await has_begun(first)
        await decode(first, 260)
        scorer_id = client.scorer.scorer_id
    async with prm_worker(weights_seed=1) as prm, client_of(prm.target) as client:
        async with working(redis_url, second, name="second", scoring=client) as bench:
            before = (await bench.store.tree(tree_id)).counts["thoughts"]
            scored = await scored_thoughts(bench.store, tree_id)
            await bench.give(tree_id)
            await has_begun(second)
            second.pace(None)
            record = await ended(bench.store, tree_id)
            assert record.counts["thoughts"] > before
            assert await scored_thoughts(bench.store, tree_id) == scored
        assert not client.given
    assert record.outcome is not None
    assert record.outcome.degraded
    assert (record.scorer, record.scorer_id) == ("sequence", scorer_id)


async def scored_thoughts(store: TreeStore, tree_id: str) -> int:
    nodes = await all_nodes(store, tree_id)
    contents = await store.contents(tree_id, [node.node for node in nodes])
    return sum(t.score is not None for content in contents for t in content.thoughts)


async def test_a_tree_goes_to_the_next_prm_worker_when_its_own_stops(redis_url: str) -> None:
    async with prm_worker() as one, prm_worker() as two, client_of(one.target, two.target) as client:
        engine = paused(Written(Drawn(2)))
        async with working(redis_url, engine, scoring=client) as bench:
            tree_id = await bench.start("gambit", parameters=dict(ASKED["gambit"]))
            await has_begun(engine)
            await decode(engine, 200)
            await until_scored(client, 20)
            home = client.home_of(scoring_id(tree_id, 1))
            await next(prm for prm in (one, two) if prm.target == home).stop()
            engine.pace(None)
            record = await ended(bench.store, tree_id)
            assert await assert_scored_as_a_whole(bench.store, record, client.given) > 40
        assert client.serving == 1
        assert client.stats.histories > 0
        assert client.stats.lost == 0


async def until_scored(client: ScoringClient, rows: int) -> None:
    async with asyncio.timeout(30):
        while client.stats.rows < rows:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def test_a_row_that_is_no_number_is_left_out_for_good(redis_url: str) -> None:
    def score(random: Random) -> float:
        return math.nan if random.random() < 0.1 else random.random()

    async with prm_worker() as prm, client_of(prm.target) as client:
        engine = paused(Written(Drawn(3, correlation=0.0, noise=0.0, quality=score)))
        async with working(redis_url, engine, scoring=client) as bench:
            tree_id = await bench.start("gambit", parameters=dict(ASKED["gambit"]))
            await has_begun(engine)
            record = await ended_in_step(bench.store, engine, client, tree_id)
            compared = await assert_scored_as_a_whole(bench.store, record, client.given)
        assert compared < sum(len(rows) for rows in client.given.values())


async def test_traces_that_have_ended_are_dropped(redis_url: str) -> None:
    async with prm_worker() as prm, client_of(prm.target) as client:
        engine = paused(Written(Drawn(2)))
        async with working(redis_url, engine, scoring=client) as bench:
            tree_id = await bench.start("gambit", parameters=dict(ASKED["gambit"]))
            await has_begun(engine)
            kept = 0
            while not (await bench.store.tree(tree_id)).state.terminal:
                await decode(engine, 20)
                await asyncio.sleep(0.06)
                kept = max(kept, len(prm.scorer.cache))
            record = await ended(bench.store, tree_id)
            # C traces count at once, and as many may have ended since the last call
            assert record.counts["nodes"] > 30 > 24 >= kept > 0
            async with asyncio.timeout(30):
                while prm.scorer.cache.used:  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.02)
