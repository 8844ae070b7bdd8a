"""The scoring client against the real service: what it batches, keeps in order, and keeps to itself."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoder_worker.scoring.client import (
    ScoredRow,
    ScorerMismatchError,
    ScorerUnreachableError,
    ScoringClient,
)
from tests.integration.prm_worker.clients import (
    Inbox,
    assert_in_order,
    assert_right,
    client_of,
    row_of,
)
from tests.integration.prm_worker.serving import HIDDEN, WEIGHTS, free_port, served
from tests.unit.prm_worker.gated import GatedScorer
from thoughtbeam.runtime.rpc import start_server
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1 import scoring_pb2_grpc


@pytest.fixture(scope="module")
async def target() -> AsyncIterator[str]:
    async with served() as worker:
        yield worker.target


async def test_rows_of_many_trees_are_scored_together_and_in_order(target: str) -> None:
    boxes = {f"tree-{n}": Inbox() for n in range(5)}
    order = [(tree, node, thought) for thought in range(20) for node in (1, 2, 3) for tree in boxes]

    async with client_of(target) as client:
        for tree, node, thought in order:
            client.submit([row_of(tree, node, thought)], boxes[tree].deliver)
        received = [await box.wait_for(60) for box in boxes.values()]

        # 300 rows were there before the first call: 256 and the rest
        assert (client.stats.calls, client.stats.rows, client.stats.lost) == (2, 300, 0)
        assert client.stats.seconds > 0

    for tree, scored in zip(boxes, received, strict=True):
        assert {item.row.tree_id for item in scored} == {tree}
        assert len(scored) == 60
        assert_in_order(scored)
        assert_right(scored)


async def test_what_gathers_during_a_call_is_the_next_call() -> None:
    scorer = GatedScorer(WEIGHTS)
    box = Inbox()
    async with served(scorer=scorer) as worker, client_of(worker.target) as client:
        scorer.gate.clear()
        client.submit([row_of("tree", 1, 0)], box.deliver)
        await asyncio.to_thread(scorer.entered.wait, 10)
        for thought in range(1, 8):
            client.submit([row_of("tree", 1, thought)], box.deliver)
            await asyncio.sleep(0.01)
        assert not box.received

        scorer.gate.set()
        scored = await box.wait_for(8)

    assert scorer.sizes == [1, 7]
    assert_in_order(scored)
    assert_right(scored)


async def test_a_call_is_never_larger_than_the_server_takes() -> None:
    box = Inbox()
    async with served(max_rows=7) as worker, client_of(worker.target) as client:
        assert (await client.info()).max_rows == 7
        client.submit([row_of("tree", 1, thought) for thought in range(20)], box.deliver)
        assert_right(await box.wait_for(20))
        assert client.stats.calls == 3


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    submits=st.lists(
        st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=10),
        min_size=1,
        max_size=10,
    ),
    seed=st.integers(0, 1000),
)
async def test_every_row_comes_back_once_in_order_and_only_finite_ones_are_scored(
    target: str, submits: list[list[tuple[int, bool]]], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    thoughts = dict.fromkeys((1, 2, 3), 0)
    box = Inbox()
    finite: dict[tuple[int, int], bool] = {}

    async with client_of(target) as client:
        for submit in submits:
            rows = []
            for node, is_finite in submit:
                values = torch.randn(HIDDEN, generator=generator)
                if not is_finite:
                    values[seed % HIDDEN] = random.Random(seed).choice([float("nan"), float("-inf")])
                rows.append(row_of("tree", node, thoughts[node], values))
                finite[node, thoughts[node]] = is_finite
                thoughts[node] += 1
            client.submit(rows, box.deliver)
            await asyncio.sleep(0)
        scored = await box.wait_for(len(finite))
        assert client.stats.rows == sum(finite.values())  # the others never left

    assert_in_order(scored)
    assert_right([item for item in scored if finite[item.row.node, item.row.thought]])
    refused = [item for item in scored if not finite[item.row.node, item.row.thought]]
    assert all(item.score is None and item.error == "NONFINITE_ROW" for item in refused)


async def test_a_row_that_overflows_in_the_scorer_costs_the_others_nothing(target: str) -> None:
    box = Inbox()
    huge = 3e38 * torch.sign(WEIGHTS["net.0.weight"][0])
    rows = [row_of("tree", node, 0, huge if node in (2, 5) else None) for node in range(1, 8)]

    async with client_of(target) as client:
        client.submit(rows, box.deliver)
        scored = await box.wait_for(7)

    assert [item.row.node for item in scored if item.error == "NONFINITE_ROW"] == [2, 5]
    assert_right([item for item in scored if not item.error])


async def test_rows_of_another_width_or_dtype_travel_in_calls_of_their_own(target: str) -> None:
    box = Inbox()
    half = torch.zeros(HIDDEN, dtype=torch.bfloat16)
    rows = [
        row_of("tree", 1, 0),
        row_of("tree", 2, 0, torch.zeros(HIDDEN // 2)),
        row_of("tree", 3, 0, half),
        row_of("tree", 4, 0),
    ]

    async with client_of(target) as client:
        client.submit(rows, box.deliver)
        scored = await box.wait_for(4)

    assert [item.error for item in scored] == ["", "SCORER_MISMATCH", "", ""]
    assert_right([scored[0], scored[3]])
    assert scored[2].score == pytest.approx(0.5, abs=0.5)


async def test_a_mismatch_is_found_at_the_start(target: str) -> None:
    for arguments, message in [
        (
            ("another-model", "blank_line", HIDDEN),
            r"model_fingerprint a-model \(the engine's is another-model\)",
        ),
        (("a-model", "every_comma", HIDDEN), r"boundary_rule blank_line \(the engine's is every_comma\)"),
        (("a-model", "blank_line", 64), r"hidden_size 16 \(the engine's is 64\)"),
    ]:
        fingerprint, rule, hidden_size = arguments
        client = ScoringClient(target, fingerprint, rule, 5.0, hidden_size=hidden_size)
        with pytest.raises(ScorerMismatchError, match=message):
            await client.info()
        await client.close()


async def test_a_mismatch_on_the_way_is_delivered_and_ends_nothing(target: str) -> None:
    box = Inbox()
    async with client_of(target, model_fingerprint="another-model") as client:
        client.submit([row_of("tree", 1, thought) for thought in range(3)], box.deliver)
        await box.wait_for(3)
        client.submit([row_of("tree", 1, 3)], box.deliver)
        scored = await box.wait_for(4)

    assert [item.error for item in scored] == ["SCORER_MISMATCH"] * 4
    assert_in_order(scored)


async def test_a_scorer_that_breaks_is_reported_and_the_next_rows_are_scored() -> None:
    scorer = GatedScorer(WEIGHTS)
    box = Inbox()
    async with served(scorer=scorer) as worker, client_of(worker.target) as client:
        scorer.broken = True
        client.submit([row_of("tree", 1, 0)], box.deliver)
        assert (await box.wait_for(1))[0].error == "SCORER_FAILED"

        scorer.broken = False
        client.submit([row_of("tree", 1, 1)], box.deliver)
        assert_right((await box.wait_for(2))[1:])


async def test_forgotten_rows_are_not_delivered_queued_or_under_way() -> None:
    scorer = GatedScorer(WEIGHTS)
    ended, staying = Inbox(), Inbox()
    async with served(scorer=scorer) as worker, client_of(worker.target) as client:
        scorer.gate.clear()
        client.submit([row_of("ended", 1, 0)], ended.deliver)
        client.submit([row_of("staying", 1, 0)], staying.deliver)
        await asyncio.to_thread(scorer.entered.wait, 10)
        client.submit([row_of("ended", 1, 1)], ended.deliver)
        client.submit([row_of("staying", 1, 1)], staying.deliver)
        client.forget("ended")
        scorer.gate.set()

        assert_right(await staying.wait_for(2))
        # the same tree may come back, on its next epoch
        client.submit([row_of("ended", 1, 0)], ended.deliver)
        assert_right(await ended.wait_for(1))

    assert len(ended.received) == 1
    assert scorer.sizes == [2, 1, 1]


async def test_a_receiver_may_forget_a_tree_whose_scores_came_with_its_own(target: str) -> None:
    other = Inbox()
    async with client_of(target) as client:
        done = asyncio.Event()

        def end_the_other(scored: Any) -> None:
            client.forget("other")
            done.set()

        client.submit([row_of("tree", 1, 0)], end_the_other)
        client.submit([row_of("other", 1, 0)], other.deliver)
        await done.wait()
        await asyncio.sleep(0.05)

    assert not other.received


class _Liar(scoring_pb2_grpc.ScorerServiceServicer):
    """Answers with what no scorer may answer."""

    async def Score(self, request: pb.ScoreRequest, context: Any) -> pb.ScoreResponse:  # noqa: N802
        nan, two = b"\x00\x00\xc0\x7f", b"\x00\x00\x00\x40"
        return pb.ScoreResponse(scores=pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, shape=[2], data=nan + two))

    async def GetScorerInfo(  # noqa: N802
        self, request: pb.GetScorerInfoRequest, context: Any
    ) -> pb.GetScorerInfoResponse:
        return pb.GetScorerInfoResponse(kind="mlp", hidden_size=HIDDEN, max_rows=2)


async def test_an_answer_that_is_no_score_is_not_taken_for_one() -> None:
    def add(server: Any) -> None:
        scoring_pb2_grpc.add_ScorerServiceServicer_to_server(_Liar(), server)

    server = await start_server("127.0.0.1:0", [add], [])
    box = Inbox()
    async with client_of(f"127.0.0.1:{server.port}") as client:
        await client.info()
        client.submit([row_of("tree", 1, thought) for thought in range(3)], box.deliver)
        scored = await box.wait_for(3)
    await server.stop(0)

    assert [item.score for item in scored] == [None] * 3
    # NaN says that a row cannot be scored; the last answer had two scores for one row
    assert [item.error for item in scored] == ["NONFINITE_ROW", "BAD_SCORES", "BAD_SCORES"]


async def test_nobody_answering_is_said_at_the_start() -> None:
    client = ScoringClient(f"127.0.0.1:{free_port()}", "f", "r", 0.3)
    with pytest.raises(ScorerUnreachableError, match=r"no prm worker answers at 127\.0\.0\.1"):
        await client.info()
    await client.close()


async def test_rows_are_lost_after_the_deadline_and_later_ones_scored_when_a_worker_comes() -> None:
    port = free_port()
    box = Inbox()
    loop = asyncio.get_running_loop()
    async with client_of(f"127.0.0.1:{port}", deadline=1.0) as client:
        started = loop.time()
        nan = torch.full((HIDDEN,), float("nan"))
        client.submit([row_of("tree", 1, 0), row_of("tree", 1, 1, nan), row_of("tree", 1, 2)], box.deliver)
        await asyncio.sleep(0.5)
        client.submit([row_of("tree", 1, 3)], box.deliver)

        await box.wait_for(3)
        assert 1.0 <= loop.time() - started < 2.5
        await box.wait_for(4)
        assert 1.5 <= loop.time() - started < 3.0
        assert client.stats.lost == 3
        assert client.stats.retries > 1

        async with served(port=port):
            await client.info()
            client.submit([row_of("tree", 1, 4)], box.deliver)
            scored: list[ScoredRow] = await box.wait_for(5)

    assert [item.error for item in scored] == [
        "SCORER_LOST",
        "NONFINITE_ROW",
        "SCORER_LOST",
        "SCORER_LOST",
        "",
    ]
    assert_in_order(scored)
    assert_right(scored[4:])


async def test_stopping_the_client_leaves_no_call_behind() -> None:
    scorer = GatedScorer(WEIGHTS)
    box = Inbox()
    async with served(scorer=scorer) as worker:
        async with client_of(worker.target) as client:
            scorer.gate.clear()
            client.submit([row_of("tree", 1, 0)], box.deliver)
            await asyncio.to_thread(scorer.entered.wait, 10)
        scorer.gate.set()
        async with client_of(worker.target) as client:
            client.submit([row_of("tree", 1, 0)], box.deliver)
            assert_right(await box.wait_for(1))
    assert len(box.received) == 1
