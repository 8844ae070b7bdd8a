"""One decoder worker and several prm workers: where rows go, and whose scores count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from decoder_worker.scoring.client import ScorerMismatchError, ScoringClient
from prm_worker.scorers.mlp import MlpScorer
from tests.integration.prm_worker.clients import Inbox, assert_in_order, assert_right, client_of, row_of
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, WEIGHTS, Served, free_port, served
from tests.unit.prm_worker.gated import GatedScorer
from tests.unit.prm_worker.weights import step_weights

TREES = [f"tree-{n}" for n in range(12)]
OTHER = step_weights(HIDDEN, seed=1)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[list[GatedScorer], list[Served]]]:
    scorers = [GatedScorer(WEIGHTS), GatedScorer(WEIGHTS)]
    async with served(scorer=scorers[0]) as one, served(scorer=scorers[1]) as other:
        yield scorers, [one, other]


def targets(workers: Sequence[Served]) -> str:
    return ",".join(worker.target for worker in workers)


async def test_each_tree_stays_with_one_and_all_have_some() -> None:
    async with two() as (scorers, workers), client_of(targets(workers)) as client:
        await client.info()
        boxes = {tree: Inbox() for tree in TREES}
        homes = []
        for thought in range(3):
            for tree, box in boxes.items():
                client.submit([row_of(tree, 1, thought)], box.deliver)
            for box in boxes.values():
                await box.wait_for(thought + 1)
            homes.append({tree: client.home_of(tree) for tree in TREES})
        assert homes[0] == homes[1] == homes[2]
        assert len(set(homes[0].values())) == 2
        by_home = [sum(home == worker.target for home in homes[0].values()) for worker in workers]
        assert [sum(scorer.sizes) for scorer in scorers] == [3 * count for count in by_home]
    for box in boxes.values():
        assert_in_order(box.received)
        assert_right(box.received)


async def test_one_that_takes_its_time_holds_up_its_own_trees_only() -> None:
    async with two() as (scorers, workers), client_of(targets(workers)) as client:
        await client.info()
        boxes = {tree: Inbox() for tree in TREES}
        scorers[0].gate.clear()
        for tree, box in boxes.items():
            client.submit([row_of(tree, 1, 0)], box.deliver)
        at_second = [tree for tree in TREES if client.home_of(tree) == workers[1].target]
        for tree in at_second:
            await boxes[tree].wait_for(1)
        waiting = [tree for tree in TREES if tree not in at_second]
        assert waiting
        assert not any(boxes[tree].received for tree in waiting)
        scorers[0].gate.set()
        for tree in waiting:
            assert_right(await boxes[tree].wait_for(1))


async def test_rows_under_way_are_asked_again_at_the_next_and_trees_stay_there() -> None:
    async with AsyncExitStack() as first, two() as (_, workers):
        port = free_port()
        scorer = GatedScorer(WEIGHTS)
        dying = await first.enter_async_context(served(scorer=scorer, port=port))
        async with client_of(targets([dying, *workers])) as client:
            await client.info()
            boxes = {tree: Inbox() for tree in TREES}
            scorer.gate.clear()
            for thought in range(2):
                for tree, box in boxes.items():
                    client.submit([row_of(tree, 1, thought)], box.deliver)
            await asyncio.to_thread(scorer.entered.wait, 10)
            moved = [tree for tree in TREES if client.home_of(tree) == dying.target]
            assert moved
            scorer.gate.set()
            await first.aclose()
            for box in boxes.values():
                assert_right(await box.wait_for(2))
                assert_in_order(box.received)
            homes = {tree: client.home_of(tree) for tree in moved}
            assert dying.target not in homes.values() or client.serving == 3
            async with served(port=port):
                async with asyncio.timeout(30):
                    while client.serving < 3:  # noqa: ASYNC110 - nothing announces it
                        await asyncio.sleep(0.02)
                for tree, box in boxes.items():
                    client.submit([row_of(tree, 1, 2)], box.deliver)
                for box in boxes.values():
                    assert_right(await box.wait_for(3))
                    assert_in_order(box.received)
                assert {tree: client.home_of(tree) for tree in moved} == homes


async def test_all_must_serve_one_scorer() -> None:
    async with served() as one, served(scorer=MlpScorer(OTHER)) as other:
        client = ScoringClient(
            f"{one.target},{other.target}", TRAINED_FOR.model_fingerprint, TRAINED_FOR.boundary_rule, 5.0
        )
        with pytest.raises(ScorerMismatchError, match="must serve one and the same scorer: ") as caught:
            await client.info()
        await client.close()
    assert f"{one.target} has mlp {MlpScorer(WEIGHTS).scorer_id}" in str(caught.value)
    assert f"{other.target} has mlp {MlpScorer(OTHER).scorer_id}" in str(caught.value)


async def test_one_is_enough_to_start_and_the_other_joins_if_it_has_the_same_scorer() -> None:
    port = free_port()
    async with served() as one, client_of(f"{one.target},127.0.0.1:{port}") as client:
        await client.info(timeout=0.5)
        box = Inbox()
        for tree in TREES:
            client.submit([row_of(tree, 1, 0)], box.deliver)
        assert_right(await box.wait_for(len(TREES)))
        async with served(port=port, scorer=MlpScorer(OTHER)):
            await asyncio.sleep(1.0)
            assert client.serving == 1
            for tree in TREES:
                client.forget(tree)
                client.submit([row_of(tree, 1, 0)], box.deliver)
            assert_right(await box.wait_for(2 * len(TREES)))
        async with served(port=port), asyncio.timeout(30):
            while client.serving < 2:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("gap", [0.0, 1.0])
async def test_several_prm_workers_get_another_scorer_one_after_the_other(gap: float) -> None:
    """gap: seconds without either; with none, the first comes back while the second still has the old one."""
    ports = [free_port(), free_port()]
    box = Inbox()
    both = ",".join(f"127.0.0.1:{port}" for port in ports)
    async with client_of(both) as client, AsyncExitStack() as second, AsyncExitStack() as replaced:
        async with served(port=ports[0]):
            await second.enter_async_context(served(port=ports[1]))
            await client.info()
            for tree in TREES:
                client.submit([row_of(tree, 1, 0)], box.deliver)
            await box.wait_for(len(TREES))
        if gap:
            await second.aclose()
            await asyncio.sleep(gap)
        await replaced.enter_async_context(served(port=ports[0], scorer=MlpScorer(OTHER)))
        for tree in TREES:
            client.submit([row_of(tree, 1, 1)], box.deliver)
        await box.wait_for(2 * len(TREES))
        await second.aclose()
        async with served(port=ports[1], scorer=MlpScorer(OTHER)):
            for tree in TREES:
                client.submit([row_of(tree, 1, 2)], box.deliver)
            await box.wait_for(3 * len(TREES), timeout=10)
            async with asyncio.timeout(10):
                while client.serving < 2:  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0.02)
            assert client.scorer.scorer_id == MlpScorer(OTHER).scorer_id
            for tree in TREES:
                client.submit([row_of(f"new {tree}", 1, 0)], box.deliver)
            scored = await box.wait_for(4 * len(TREES), timeout=10)
            assert all(item.score is not None for item in scored[3 * len(TREES) :])


async def test_each_prm_worker_has_to_fit_the_engine() -> None:
    elsewhere = replace(TRAINED_FOR, model_fingerprint="another-model")
    async with served(elsewhere, allow_mismatch=True) as lenient, served(elsewhere) as strict:
        for order in ([lenient, strict], [strict, lenient]):
            async with client_of(targets(order)) as client:
                with pytest.raises(ScorerMismatchError, match=f"{strict.target} was trained for another"):
                    await client.info()


async def test_one_that_has_never_answered_does_not_count() -> None:
    async with served() as one, client_of(f"{one.target},127.0.0.1:{free_port()}") as client:
        await client.info(timeout=0.3)
        assert client.serving == 1


async def test_a_scorer_that_is_replaced_scores_what_has_no_scores_yet() -> None:
    port = free_port()
    box = Inbox()
    async with client_of(f"127.0.0.1:{port}") as client:
        async with served(port=port):
            await client.info()
            client.submit([row_of("old", 1, 0)], box.deliver)
            await box.wait_for(1)
        async with served(port=port, scorer=MlpScorer(OTHER)):
            client.submit([row_of("old", 1, 1)], box.deliver)
            scored = await box.wait_for(2)
            assert [item.error for item in scored] == ["", "SCORER_CHANGED"]
            client.submit([row_of("new", 1, 0)], box.deliver)
            assert (await box.wait_for(3))[2].score is not None
            assert client.scorer.scorer_id == MlpScorer(OTHER).scorer_id
