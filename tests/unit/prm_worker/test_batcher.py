"""Dynamic batching, with the real scorer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import torch

from prm_worker.batcher import Batcher
from prm_worker.scorers.base import Float32Array, Scorer, TracePart
from tests.unit.prm_worker.gated import GatedScorer
from tests.unit.prm_worker.weights import direct_scores, sequence_scorer, step_weights

HIDDEN = 16
WEIGHTS = step_weights(HIDDEN)


@asynccontextmanager
async def running(scorer: Scorer, max_rows: int) -> AsyncIterator[Batcher]:
    async with asyncio.TaskGroup() as group:
        batcher = Batcher(scorer, max_rows)
        task = group.create_task(batcher.run())
        try:
            yield batcher
        finally:
            if isinstance(scorer, GatedScorer):
                scorer.gate.set()
            task.cancel()


def some_rows(count: int, seed: int) -> Float32Array:
    return np.random.default_rng(seed).normal(size=(count, HIDDEN)).astype(np.float32)


async def gathered(scorer: GatedScorer, batcher: Batcher, calls: list[Float32Array]) -> list[Float32Array]:
    """Sends the calls while a pass of one row is under way."""
    scorer.gate.clear()
    scorer.entered.clear()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(batcher.score(some_rows(1, seed=99)))
        await asyncio.to_thread(scorer.entered.wait, 10)
        tasks = [group.create_task(batcher.score(rows)) for rows in calls]
        await asyncio.sleep(0)
        assert not first.done()
        scorer.gate.set()
    return [task.result().scores for task in tasks]


async def test_what_has_gathered_is_one_pass_and_each_call_gets_its_own_scores() -> None:
    scorer = GatedScorer(WEIGHTS)
    calls = [some_rows(n, seed=n) for n in (3, 1, 5)]

    async with running(scorer, max_rows=64) as batcher:
        scores = await gathered(scorer, batcher, calls)

    assert scorer.sizes == [1, 9]
    assert batcher.passes == 2
    assert len(scorer.threads) == 1
    assert threading.get_ident() not in scorer.threads
    for rows, own in zip(calls, scores, strict=True):
        assert own == pytest.approx(direct_scores(WEIGHTS, torch.from_numpy(rows)), abs=1e-6)


async def test_a_pass_takes_whole_calls_up_to_its_bound() -> None:
    scorer = GatedScorer(WEIGHTS)

    async with running(scorer, max_rows=8) as batcher:
        await gathered(scorer, batcher, [some_rows(n, seed=n) for n in (3, 5, 1, 8, 7)])

    assert scorer.sizes == [1, 8, 1, 8, 7]


@pytest.mark.parametrize("count", [0, 9])
async def test_a_call_out_of_bounds_is_refused(count: int) -> None:
    async with running(GatedScorer(WEIGHTS), max_rows=8) as batcher:
        with pytest.raises(ValueError, match=f"{count} rows in one call; there must be 1 to 8"):
            await batcher.score(some_rows(count, seed=0))


async def test_a_failing_pass_fails_its_calls_and_not_the_next() -> None:
    scorer = GatedScorer(WEIGHTS)
    async with running(scorer, max_rows=8) as batcher:
        scorer.broken = True
        outcomes = await asyncio.gather(
            batcher.score(some_rows(1, seed=0)), batcher.score(some_rows(2, seed=1)), return_exceptions=True
        )
        scorer.broken = False

        assert [str(outcome) for outcome in outcomes] == ["out of memory"] * 2
        assert len((await batcher.score(some_rows(3, seed=2))).scores) == 3


async def test_a_caller_that_goes_away_costs_no_pass_and_disturbs_no_other() -> None:
    scorer = GatedScorer(WEIGHTS)
    async with running(scorer, max_rows=64) as batcher:
        scorer.gate.clear()
        running_call = asyncio.ensure_future(batcher.score(some_rows(1, seed=0)))
        await asyncio.to_thread(scorer.entered.wait, 10)
        waiting = asyncio.ensure_future(batcher.score(some_rows(4, seed=1)))
        staying = asyncio.ensure_future(batcher.score(some_rows(2, seed=2)))
        await asyncio.sleep(0)
        running_call.cancel()
        waiting.cancel()
        await asyncio.sleep(0)
        scorer.gate.set()

        assert len((await staying).scores) == 2
        assert scorer.sizes == [1, 2]
        assert running_call.cancelled()
        assert waiting.cancelled()


async def test_stopping_cancels_the_calls_that_wait() -> None:
    scorer = GatedScorer(WEIGHTS)
    async with running(scorer, max_rows=64) as batcher:
        scorer.gate.clear()
        calls = [asyncio.ensure_future(batcher.score(some_rows(1, seed=n))) for n in range(3)]
        await asyncio.to_thread(scorer.entered.wait, 10)

    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


async def test_the_event_loop_stays_free_during_a_pass() -> None:
    scorer = GatedScorer(WEIGHTS)
    async with running(scorer, max_rows=8) as batcher:
        scorer.gate.clear()
        call = asyncio.ensure_future(batcher.score(some_rows(1, seed=0)))
        await asyncio.to_thread(scorer.entered.wait, 10)
        for _ in range(100):
            await asyncio.sleep(0)  # would not come back if the pass held the loop
        assert not call.done()
        scorer.gate.set()
        assert len((await call).scores) == 1


async def test_a_batcher_that_stops_waits_for_its_pass_and_leaves_the_event_loop_free() -> None:
    scorer = GatedScorer(WEIGHTS)
    scorer.gate.clear()
    batcher = Batcher(scorer, 64)
    task = asyncio.create_task(batcher.run())
    call = asyncio.create_task(batcher.score(some_rows(1, seed=1)))
    await asyncio.to_thread(scorer.entered.wait, 10)

    task.cancel()
    await asyncio.sleep(0.05)  # others run, though nothing ends the pass
    assert not task.done()
    scorer.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(asyncio.CancelledError):
        await call
    assert scorer.sizes == [1]


async def test_traces_are_dropped_after_the_calls_that_came_before_and_before_those_after() -> None:
    scorer = sequence_scorer(HIDDEN, width=32)
    async with running(scorer, max_rows=8) as batcher:
        rows = some_rows(4, seed=0)
        calls = [asyncio.ensure_future(batcher.score(rows[:2], [TracePart("t", 0, 0, 2)]))]
        calls.append(asyncio.ensure_future(batcher.score(rows[2:3], [TracePart("t", 0, 2, 1)])))
        await asyncio.sleep(0)  # both wait
        batcher.drop("t", [0])
        last = await batcher.score(rows[3:], [TracePart("t", 0, 3, 1)])

    assert [dict((await call).need_history) for call in calls] == [{}, {}]
    assert last.need_history == {0: 0}


async def test_a_drop_needs_no_call_to_take_effect() -> None:
    scorer = sequence_scorer(HIDDEN, width=32)
    async with running(scorer, max_rows=8) as batcher:
        await batcher.score(some_rows(2, seed=0), [TracePart("t", 0, 0, 1), TracePart("t", 1, 0, 1)])
        batcher.drop("t", [])
        async with asyncio.timeout(10):
            while len(scorer.cache):  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)
    assert batcher.passes == 1


async def test_each_call_learns_of_its_own_traces_which_need_history() -> None:
    scorer = sequence_scorer(HIDDEN, width=32)
    async with running(scorer, max_rows=8) as batcher:
        await batcher.score(some_rows(1, seed=0), [TracePart("t", 0, 0, 1)])
        first, second = await asyncio.gather(
            batcher.score(some_rows(2, seed=1), [TracePart("t", 0, 1, 1), TracePart("t", 5, 3, 1)]),
            batcher.score(some_rows(3, seed=2), [TracePart("t", 6, 7, 2), TracePart("t", 0, 2, 1)]),
        )

    assert batcher.passes == 2
    assert (first.need_history, second.need_history) == ({1: 0}, {0: 0})
    assert np.isnan(first.scores).tolist() == [False, True]
    assert np.isnan(second.scores).tolist() == [True, True, False]
