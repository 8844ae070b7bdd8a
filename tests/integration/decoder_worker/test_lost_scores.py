"""Searches whose scores do not come: they say so, and vote without them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.scoring.client import ScoringClient
from prm_worker.scorer_file import Metadata
from prm_worker.scorers.base import Float32Array
from tests.integration.decoder_worker.harness import (
    RecordingEngine,
    ScriptedScoring,
    drawn,
    ended,
    feed,
    rounds,
    working,
)
from tests.integration.prm_worker.serving import served
from tree_store.model import TreeRecord, TreeState

NOWHERE = "127.0.0.1:1"
GAMBIT = {"C": 8, "K": 2, "interval": 8, "warmup": 40, "N_max": 8}


class CarriedScorer:
    """A scorer for scripted rows: the score is the first value."""

    kind = "mlp"
    hidden_size = 4
    scorer_id = "carried"

    def score(self, rows: Float32Array) -> Float32Array:
        return np.clip(rows[:, 0], 0.0, 1.0)


@asynccontextmanager
async def scoring_at(target: str, deadline: float = 60.0) -> AsyncIterator[ScoringClient]:
    client = ScoringClient(target, "scripted", "blank_line", deadline, hidden_size=4)
    try:
        yield client
    finally:
        await client.close()


def engine() -> RecordingEngine:
    return RecordingEngine(drawn(4), ScriptedConfig(slots=8))


def assert_unscored_vote(record: TreeRecord) -> None:
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert record.outcome.degraded
    assert record.outcome.votes
    assert all(vote.weight == len(vote.nodes) for vote in record.outcome.votes)


async def test_a_real_prm_worker_scores_every_thought(redis_url: str) -> None:
    trained_for = Metadata("mlp", 4, "scripted", "blank_line")
    async with (
        served(trained_for, scorer=CarriedScorer()) as prm,
        scoring_at(prm.target) as scoring,
        working(redis_url, engine(), scoring=scoring) as bench,
    ):
        record = await bench.solve("gambit", parameters=GAMBIT)
        held = rounds(await feed(bench.store, record.tree_id))
    assert record.outcome is not None
    assert not record.outcome.degraded
    assert sum(len(branched) for _, branched in held) == record.counts["branches"] > 0
    assert sum(vote.weight for vote in record.outcome.votes) < sum(len(v.nodes) for v in record.outcome.votes)


async def test_without_a_prm_worker_until_the_scorers_deadline(redis_url: str) -> None:
    async with (
        scoring_at(NOWHERE, deadline=0.3) as scoring,
        working(redis_url, engine(), scoring=scoring) as bench,
    ):
        record = await bench.solve("best_of_n", parameters={"N": 4})
    assert_unscored_vote(record)
    assert record.outcome is not None
    assert record.outcome.ended_by == ""


async def test_without_a_prm_worker_until_the_searchs_deadline(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decoder_worker.tree_run.LATE_SCORES_SECONDS", 0.1)
    async with scoring_at(NOWHERE) as scoring, working(redis_url, engine(), scoring=scoring) as bench:
        record = await bench.solve("best_of_n", parameters={"N": 4}, seconds=2.0)
    assert_unscored_vote(record)


async def test_a_prm_worker_for_another_model(redis_url: str) -> None:
    async with (
        served(Metadata("mlp", 4, "another-model", "blank_line"), scorer=CarriedScorer()) as prm,
        scoring_at(prm.target) as scoring,
        working(redis_url, engine(), scoring=scoring) as bench,
    ):
        record = await bench.solve("gambit", parameters=GAMBIT)
        assert scoring.stats.lost == 0  # each row was answered
    assert_unscored_vote(record)
    assert record.counts["branches"] == 0


async def test_a_prm_worker_for_another_model_that_is_told_to_score_all_the_same(redis_url: str) -> None:
    async with (
        served(
            Metadata("mlp", 4, "another-model", "blank_line"), scorer=CarriedScorer(), allow_mismatch=True
        ) as prm,
        scoring_at(prm.target) as scoring,
        working(redis_url, engine(), scoring=scoring) as bench,
    ):
        await scoring.info()
        record = await bench.solve("gambit", parameters=GAMBIT)
    assert record.outcome is not None
    assert not record.outcome.degraded
    assert (record.scorer, record.scorer_id) == ("mlp", "carried")
    assert record.scorer_mismatch == "model_fingerprint is scripted, not another-model"


async def test_a_degraded_search_stays_so_at_its_next_worker(redis_url: str) -> None:
    first = engine()
    first.pace(0)
    async with (
        scoring_at(NOWHERE, deadline=0.01) as scoring,
        working(redis_url, first, scoring=scoring) as bench,
    ):
        tree_id = await bench.start("best_of_n", parameters={"N": 4})
        while not scoring.stats.lost:
            first.pace(1)
            await bench.store.ping()
    async with working(redis_url, engine(), name="second", scoring=ScriptedScoring()) as bench:
        await bench.give(tree_id)
        assert_unscored_vote(await ended(bench.store, tree_id))
