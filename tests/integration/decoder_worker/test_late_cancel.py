"""A cancel that comes when a search has ended by itself: it has an answer, and the answer counts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from decoder_worker import tree_run
from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.engine.scripted_traces import write_trace
from tests.integration.decoder_worker.harness import (
    Bench,
    RecordingEngine,
    ScriptedScoring,
    ended,
    replayed,
    working,
)
from tests.integration.gateway.harness import PATIENCE, eventually
from tree_store.model import TreeRecord, TreeState
from tree_store.store import TreeStore


def two_traces() -> RecordingEngine:
    """Two traces of two thoughts each, with the same answer."""
    trace = write_trace([(5, 0.5), (5, 0.75)], "42")
    return RecordingEngine(replayed(trace, trace), ScriptedConfig(slots=2))


class SlowToFinish(TreeStore):
    """Ends trees only when it may."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked = asyncio.Event()
        self.may = asyncio.Event()

    async def finish(self, *args: Any, **named: Any) -> None:
        self.asked.set()
        await self.may.wait()
        await super().finish(*args, **named)


async def cancel(bench: Bench, tree_id: str) -> None:
    """As a gateway does: noted in the store, and told to the worker, which may hear of it again."""
    await bench.store.request_cancel(tree_id)
    bench.worker.cancel(tree_id)
    bench.worker.cancel(tree_id)


def assert_answered(record: TreeRecord, *, degraded: bool) -> None:
    assert record.state is TreeState.SUCCEEDED
    assert record.cancel_requested
    assert record.outcome is not None
    assert (record.outcome.answer, record.outcome.degraded) == ("42", degraded)
    assert record.counts["finished"] == 2


async def test_before_its_end_is_written_it_still_succeeds(redis_url: str) -> None:
    slow = SlowToFinish(redis_url)
    async with working(redis_url, two_traces(), own_store=slow) as bench:
        tree_id = await bench.start("best_of_n", parameters={"N": 2})
        await asyncio.wait_for(slow.asked.wait(), PATIENCE)
        await cancel(bench, tree_id)
        slow.may.set()
        assert_answered(await ended(bench.store, tree_id), degraded=False)


@pytest.mark.parametrize("scored_in_time", [True, False])
async def test_its_vote_waits_no_longer_for_scores(
    redis_url: str, scored_in_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree_run, "LATE_SCORES_SECONDS", PATIENCE if scored_in_time else 0.05)
    engine, scoring = two_traces(), ScriptedScoring(holding=True)
    async with working(redis_url, engine, scoring=scoring) as bench:
        tree_id = await bench.start("best_of_n", parameters={"N": 2}, seconds=86_400)

        async def all_have_finished() -> bool:
            return len(scoring.held) == 4 and not engine.resident()

        await eventually(all_have_finished)
        await cancel(bench, tree_id)
        if scored_in_time:
            scoring.release()
        assert_answered(await ended(bench.store, tree_id), degraded=not scored_in_time)


async def test_a_search_that_was_still_running_is_cancelled(redis_url: str) -> None:
    engine = two_traces()
    engine.pace(0)
    async with working(redis_url, engine) as bench:
        tree_id = await bench.start("best_of_n", parameters={"N": 2})

        async def both_run() -> bool:
            return len(engine.added) == 2

        await eventually(both_run)
        await cancel(bench, tree_id)
        record = await ended(bench.store, tree_id)
    assert record.state is TreeState.CANCELLED
    assert record.counts["cancelled"] == 2
