"""A scorer that keeps histories, over a real channel: what it forgets is asked for, and what is malformed is
named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from grpc import StatusCode
from grpc.aio import AioRpcError

from prm_worker.scorer_file import Metadata
from prm_worker.scorers.base import Scorer
from prm_worker.scorers.incremental import SequenceScorer
from prm_worker.scorers.mlp import MlpScorer
from prm_worker.scorers.sequence import net_of
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, WEIGHTS, served
from tests.unit.prm_worker.weights import sequence_scorer, sequence_weights, step_weights
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import StatusError, from_rpc_error
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub

WIDTH = 32
SEQUENCE = replace(TRAINED_FOR, kind="sequence")


@pytest.fixture(scope="module")
async def stub() -> AsyncIterator[Any]:
    scorer = SequenceScorer(sequence_weights(HIDDEN, WIDTH), cache_bytes=2**20, cache_dtype="float32")
    async with served(SEQUENCE, scorer=scorer) as worker, open_channel(worker.target) as channel:
        yield ScorerServiceStub(channel)


def tensor(values: torch.Tensor) -> pb.Tensor:
    kinds = {torch.float32: pb.DATA_TYPE_FLOAT32, torch.float16: pb.DATA_TYPE_FLOAT16}
    data = values.contiguous().view(torch.uint8).numpy().tobytes()
    return pb.Tensor(dtype=kinds[values.dtype], shape=list(values.shape), data=data)


def projected_of(answer: pb.ScoreResponse) -> torch.Tensor:
    values = torch.frombuffer(bytearray(answer.projected.data), dtype=torch.float16)
    return values.reshape(tuple(answer.projected.shape))


def request_of(rows: torch.Tensor, *traces: pb.TraceRows) -> pb.ScoreRequest:
    return pb.ScoreRequest(
        model_fingerprint=TRAINED_FOR.model_fingerprint,
        boundary_rule=TRAINED_FOR.boundary_rule,
        rows=tensor(rows),
        traces=traces,
    )


def some_rows(count: int, seed: int, hidden: int = HIDDEN) -> torch.Tensor:
    return torch.randn(count, hidden, generator=torch.Generator().manual_seed(seed))


def scores_of(answer: pb.ScoreResponse) -> list[float]:
    values: list[float] = np.frombuffer(answer.scores.data, "<f4").tolist()
    return values


def right_scores(rows: torch.Tensor) -> Sequence[float]:
    """Of all thoughts of one trace."""
    with torch.inference_mode():
        net = net_of(sequence_weights(HIDDEN, WIDTH))
        found: list[float] = torch.sigmoid(net(rows[None], torch.tensor([len(rows)])))[0].tolist()
    return found


async def refusal(call: Any) -> StatusError:
    with pytest.raises(AioRpcError) as caught:
        await call
    return from_rpc_error(caught.value)


async def test_a_trace_grows_branches_is_dropped_and_comes_back_with_its_history(stub: Any) -> None:
    rows = some_rows(7, seed=1)
    trunk, branch = rows[:5], torch.cat((rows[:3], rows[5:]))

    begun = await stub.Score(request_of(rows[:4], pb.TraceRows(tree_id="t", node=0, rows=4)))
    grown = await stub.Score(
        request_of(
            rows[4:6],
            pb.TraceRows(tree_id="t", node=0, first_thought=4, rows=1),
            pb.TraceRows(tree_id="t", node=1, first_thought=3, rows=1, parent=0, fork_thought=3),
        )
    )
    await stub.DropTraces(pb.DropTracesRequest(tree_id="t", nodes=[1]))
    part = pb.TraceRows(tree_id="t", node=1, first_thought=4, rows=1, parent=0, fork_thought=3)
    lost = await stub.Score(request_of(rows[6:], part))
    part.history.CopyFrom(tensor(projected_of(grown)[1:]))
    back = await stub.Score(request_of(rows[6:], part))

    assert [*scores_of(begun), scores_of(grown)[0]] == pytest.approx(right_scores(trunk), abs=1e-5)
    # the parent is still there: only what the branch has itself is wanted
    assert [(need.trace, need.from_thought) for need in lost.need_history] == [(0, 3)]
    assert np.isnan(scores_of(lost)).all()
    assert not projected_of(lost).any()
    assert [scores_of(grown)[1], *scores_of(back)] == pytest.approx(right_scores(branch)[3:], abs=1e-5)
    assert not back.need_history


async def test_a_call_that_is_repeated_has_the_same_scores(stub: Any) -> None:
    rows = some_rows(6, seed=2)
    await stub.Score(request_of(rows[:3], pb.TraceRows(tree_id="again", node=0, rows=3)))
    call = request_of(rows[3:], pb.TraceRows(tree_id="again", node=0, first_thought=3, rows=3))

    for _ in range(3):
        assert scores_of(await stub.Score(call)) == pytest.approx(right_scores(rows)[3:], abs=1e-5)


async def test_traces_of_other_trees_are_others(stub: Any) -> None:
    await stub.Score(request_of(some_rows(1, seed=3), pb.TraceRows(tree_id="one", node=0, rows=1)))
    part = pb.TraceRows(tree_id="two", node=0, first_thought=1, rows=1)

    assert (await stub.Score(request_of(some_rows(1, seed=4), part))).need_history


HISTORY = torch.zeros(2, WIDTH, dtype=torch.float16)


@pytest.mark.parametrize(
    ("history", "field", "description"),
    [
        (tensor(HISTORY.float()), "dtype", "it must be DATA_TYPE_FLOAT16"),
        (tensor(HISTORY[:, :8]), "shape", f"is [2, 8]; it must be [at most 2 thoughts, {WIDTH}]"),
        (tensor(HISTORY.repeat(2, 1)), "shape", "at most 2 thoughts"),
        (tensor(HISTORY[0]), "shape", f"is [{WIDTH}]"),
        (tensor(HISTORY / 0), "data", "holds values that are not finite"),
        (
            pb.Tensor(dtype=pb.DATA_TYPE_FLOAT16, shape=[2, WIDTH], data=b"1"),
            "data",
            "has 1 bytes; shape [2, 32] takes exactly 128",
        ),
    ],
)
async def test_a_malformed_history_is_refused_by_field(
    stub: Any, history: pb.Tensor, field: str, description: str
) -> None:
    part = pb.TraceRows(tree_id="bad", node=0, first_thought=2, rows=1, history=history)

    error = await refusal(stub.Score(request_of(some_rows(1, seed=5), part)))

    assert error.code is StatusCode.INVALID_ARGUMENT
    assert error.violations[0].field == f"traces[0].history.{field}"
    assert description in error.violations[0].description
    good = pb.TraceRows(tree_id="bad", node=0, rows=1)
    assert not np.isnan(scores_of(await stub.Score(request_of(some_rows(1, seed=5), good)))).any()


async def test_a_trace_longer_than_the_cache_is_refused_with_the_setting_that_helps(stub: Any) -> None:
    most = 2**20 // (2 * WIDTH * 4)
    part = pb.TraceRows(tree_id="long", node=0, first_thought=most, rows=1)

    error = await refusal(stub.Score(request_of(some_rows(1, seed=6), part)))

    assert error.violations[0].field == "traces[0].first_thought"
    assert f"at most {most}, for which cache_mb has room" in error.violations[0].description


async def test_a_row_that_overflows_is_named_and_the_trace_goes_on_without_it() -> None:
    weights = sequence_weights(HIDDEN, WIDTH)
    weights["w_in.weight"] *= 1e5
    scorer = SequenceScorer(weights)
    async with served(SEQUENCE, scorer=scorer) as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        rows = torch.ones(3, HIDDEN)
        rows[1] = some_rows(1, seed=7)[0]
        part = pb.TraceRows(tree_id="t", node=0, rows=3)
        error = await refusal(stub.Score(request_of(rows, part)))
        part.rows = 2
        answer = await stub.Score(request_of(rows[[0, 2]], part))

    assert (error.reason, error.metadata) == ("NONFINITE_ROW", {"row": "1"})
    assert not np.isnan(scores_of(answer)).any()


async def test_info_says_what_has_to_be_kept_and_by_whom_it_was_made(stub: Any) -> None:
    info = await stub.GetScorerInfo(pb.GetScorerInfoRequest())
    assert (info.kind, info.history_size, info.mismatch_allowed) == ("sequence", WIDTH, False)
    assert info.scorer_id == SequenceScorer(sequence_weights(HIDDEN, WIDTH)).scorer_id

    async with served() as worker, open_channel(worker.target) as channel:
        other: Any = ScorerServiceStub(channel)
        info = await other.GetScorerInfo(pb.GetScorerInfoRequest())
    assert (info.kind, info.history_size) == ("mlp", 0)
    assert info.scorer_id == MlpScorer(WEIGHTS).scorer_id


async def test_a_scorer_of_hidden_states_reads_no_text(stub: Any) -> None:
    error = await refusal(stub.ScoreText(pb.ScoreTextRequest()))

    assert (error.code, error.reason) == (StatusCode.FAILED_PRECONDITION, "WRONG_SCORER_KIND")
    assert error.metadata == {"kind": "sequence"}
    assert "sequence" in error.message


async def test_a_scorer_without_histories_has_nothing_to_drop() -> None:
    async with served() as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        await stub.DropTraces(pb.DropTracesRequest(tree_id="t"))
        await stub.DropTraces(pb.DropTracesRequest(tree_id="t", nodes=[1, 2]))


async def test_where_it_is_allowed_another_model_is_scored_and_every_answer_says_so() -> None:
    async with served(allow_mismatch=True) as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        assert (await stub.GetScorerInfo(pb.GetScorerInfoRequest())).mismatch_allowed
        call = request_of(some_rows(1, seed=8), pb.TraceRows(tree_id="t", rows=1))
        fits = await stub.Score(call)
        call.model_fingerprint, call.boundary_rule = "another-model", "every_comma"
        differs = await stub.Score(call)
        call.rows.CopyFrom(tensor(torch.zeros(1, 8)))
        error = await refusal(stub.Score(call))

    assert fits.mismatch == ""
    assert differs.mismatch == (
        "model_fingerprint is another-model, not a-model; boundary_rule is every_comma, not blank_line"
    )
    assert scores_of(differs) == scores_of(fits)
    assert (error.reason, error.metadata["hidden_size"]) == ("SCORER_MISMATCH", "16")


@pytest.mark.parametrize("kind", ["mlp", "sequence"])
async def test_256_rows_of_a_large_model_are_one_call_with_all_their_histories(kind: str) -> None:
    hidden, traces, thoughts = 4096, 256, 300
    scorer: Scorer = MlpScorer(step_weights(hidden))
    history = None
    if kind == "sequence":
        scorer = sequence_scorer(hidden, thoughts=2**17)
        history = tensor(torch.zeros(thoughts, 256, dtype=torch.float16))
    parts = [
        pb.TraceRows(tree_id="t", node=node, first_thought=thoughts, rows=1, history=history)
        for node in range(traces)
    ]
    call = request_of(some_rows(traces, 9, hidden), *parts)
    assert call.ByteSize() > (40 if history else 4) * 2**20

    trained_for = Metadata(kind, hidden)
    async with served(trained_for, scorer=scorer) as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        answer = await stub.Score(call, timeout=120)

    assert not answer.need_history
    assert not np.isnan(scores_of(answer)).any()
