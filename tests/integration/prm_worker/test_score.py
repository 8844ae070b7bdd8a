"""ScorerService over a real channel: scores are exact, refusals say why, and the next call works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from grpc import StatusCode
from grpc.aio import AioRpcError
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from prm_worker.scorer_file import Metadata
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, WEIGHTS, served
from tests.unit.prm_worker.weights import direct_scores
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import StatusError, from_rpc_error
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub

DTYPES = {
    torch.float32: pb.DATA_TYPE_FLOAT32,
    torch.float16: pb.DATA_TYPE_FLOAT16,
    torch.bfloat16: pb.DATA_TYPE_BFLOAT16,
}


@pytest.fixture(scope="module")
async def stub() -> AsyncIterator[Any]:
    async with served() as worker, open_channel(worker.target) as channel:
        yield ScorerServiceStub(channel)


def request_of(rows: torch.Tensor, counts: list[int] | None = None) -> pb.ScoreRequest:
    return pb.ScoreRequest(
        model_fingerprint=TRAINED_FOR.model_fingerprint,
        boundary_rule=TRAINED_FOR.boundary_rule,
        rows=pb.Tensor(
            dtype=DTYPES[rows.dtype], shape=list(rows.shape), data=rows.view(torch.uint8).numpy().tobytes()
        ),
        traces=[
            pb.TraceRows(tree_id="tree", node=node, rows=count)
            for node, count in enumerate([len(rows)] if counts is None else counts)
        ],
    )


def scores_of(answer: pb.ScoreResponse) -> list[float]:
    assert answer.scores.dtype == pb.DATA_TYPE_FLOAT32
    values: list[float] = np.frombuffer(answer.scores.data, "<f4").tolist()
    assert list(answer.scores.shape) == [len(values)]
    return values


async def refusal(stub: Any, request: pb.ScoreRequest) -> StatusError:
    with pytest.raises(AioRpcError) as caught:
        await stub.Score(request)
    return from_rpc_error(caught.value)


async def still_scores(stub: Any) -> None:
    rows = torch.ones(1, HIDDEN)
    assert scores_of(await stub.Score(request_of(rows))) == pytest.approx(
        direct_scores(WEIGHTS, rows), abs=1e-6
    )


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    calls=st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=8),
    dtype=st.sampled_from(list(DTYPES)),
    seed=st.integers(0, 2**31),
)
async def test_ragged_batches_score_as_a_direct_forward_pass_of_each_row(
    stub: Any, calls: list[list[int]], dtype: torch.dtype, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    batches = [(torch.randn(sum(counts), HIDDEN, generator=generator) * 3).to(dtype) for counts in calls]

    answers = await asyncio.gather(
        *(stub.Score(request_of(rows, counts)) for rows, counts in zip(batches, calls, strict=True))
    )

    for rows, answer in zip(batches, answers, strict=True):
        assert scores_of(answer) == pytest.approx(direct_scores(WEIGHTS, rows), abs=1e-6)


async def test_concurrent_calls_share_passes() -> None:
    async with served() as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        batches = [torch.full((2, HIDDEN), n / 100) for n in range(100)]

        answers = await asyncio.gather(*(stub.Score(request_of(rows)) for rows in batches))

        assert worker.batcher.passes < len(batches)
        for rows, answer in zip(batches, answers, strict=True):
            assert scores_of(answer) == pytest.approx(direct_scores(WEIGHTS, rows), abs=1e-6)


async def test_the_largest_call_is_taken_and_one_row_more_refused() -> None:
    async with served(max_rows=20) as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        assert len(scores_of(await stub.Score(request_of(torch.zeros(20, HIDDEN))))) == 20

        error = await refusal(stub, request_of(torch.zeros(21, HIDDEN)))

        assert error.code is StatusCode.INVALID_ARGUMENT
        assert error.violations[0].field == "rows.shape"
        assert "21 rows; there must be 1 to 20" in error.violations[0].description


async def test_info_describes_the_scorer(stub: Any) -> None:
    info = await stub.GetScorerInfo(pb.GetScorerInfoRequest())
    assert (info.kind, info.hidden_size, info.max_rows) == ("mlp", HIDDEN, 512)
    assert (info.model_fingerprint, info.boundary_rule) == ("a-model", "blank_line")


@pytest.mark.parametrize(
    ("counts", "field", "description"),
    [
        ([2, 2], "traces", "add up to 4; rows.shape has 5"),
        ([5, 1], "traces", "add up to 6"),
        ([], "traces", "add up to 0"),
        ([3, 0, 2], "traces[1].rows", "is 0; it must be at least 1"),
    ],
)
async def test_counts_that_do_not_add_up_are_refused(
    stub: Any, counts: list[int], field: str, description: str
) -> None:
    error = await refusal(stub, request_of(torch.zeros(5, HIDDEN), counts))

    assert error.code is StatusCode.INVALID_ARGUMENT
    assert error.violations[0].field == field
    assert description in error.violations[0].description
    await still_scores(stub)


async def test_a_malformed_tensor_is_refused_by_field(stub: Any) -> None:
    request = request_of(torch.zeros(5, HIDDEN))
    request.rows.data = request.rows.data[:-1]

    error = await refusal(stub, request)

    assert error.code is StatusCode.INVALID_ARGUMENT
    assert error.violations[0].field == "rows.data"
    await still_scores(stub)


ITEM_BYTES = {pb.DATA_TYPE_FLOAT32: 4, pb.DATA_TYPE_FLOAT16: 2, pb.DATA_TYPE_BFLOAT16: 2}
MAX_UINT32 = 2**32 - 1


@st.composite
def tensors(draw: st.DrawFn) -> pb.Tensor:
    """Tensors as a broken or a hostile caller would send them: each part is right or wrong by itself."""
    rows = draw(st.integers(1, 6))
    dtype = draw(st.sampled_from(list(ITEM_BYTES)) | st.integers(-(2**31), 2**31 - 1))
    sizes = st.integers(0, 8) | st.sampled_from([HIDDEN, 512, 513, 2**16, 2**31, MAX_UINT32])
    shape = draw(st.just([rows, HIDDEN]) | st.lists(sizes, max_size=5))
    length = rows * HIDDEN * ITEM_BYTES.get(dtype, 4) + draw(st.just(0) | st.integers(-9, 9))
    data = bytearray(max(0, length))
    for place in draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=2)):
        if data:
            data[place] = draw(st.sampled_from([0x7F, 0x80, 0xFF, 0x01]))
    return pb.Tensor(dtype=dtype, shape=shape, data=bytes(data))  # type: ignore[arg-type]


def fault_of(tensor: pb.Tensor) -> str | None:
    """The field that is wrong by the words of scoring.proto; None for a good one."""
    if tensor.dtype not in ITEM_BYTES:
        return "rows.dtype"
    if len(tensor.shape) != 2 or not 1 <= tensor.shape[0] <= 512 or tensor.shape[1] < 1:
        return "rows.shape"
    if len(tensor.data) != tensor.shape[0] * tensor.shape[1] * ITEM_BYTES[tensor.dtype]:
        return "rows.data"
    (kind,) = (kind for kind, number in DTYPES.items() if number == tensor.dtype)
    values = torch.frombuffer(bytearray(tensor.data), dtype=kind).float()
    assume(
        not (values.isfinite() & (values.abs() > 1e30)).any()
    )  # whether it overflows is the scorer's to say
    return None if values.isfinite().all() else "rows.data"


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensor=tensors())
async def test_whatever_is_wrong_with_a_tensor_is_named_and_the_next_call_works(
    stub: Any, tensor: pb.Tensor
) -> None:
    fault = fault_of(tensor)
    rows = tensor.shape[0] if tensor.shape else 1
    request = request_of(torch.zeros(1, HIDDEN), [min(rows, MAX_UINT32)])
    request.rows.CopyFrom(tensor)

    if fault is None and tensor.shape[1] == HIDDEN:
        assert len(scores_of(await stub.Score(request))) == tensor.shape[0]
        return
    error = await refusal(stub, request)

    if fault is None:
        assert (error.code, error.reason) == (StatusCode.FAILED_PRECONDITION, "SCORER_MISMATCH")
    else:
        assert error.code is StatusCode.INVALID_ARGUMENT
        assert [violation.field for violation in error.violations] == [fault]
    await still_scores(stub)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
async def test_rows_that_are_not_finite_are_never_scored(stub: Any, dtype: torch.dtype, bad: float) -> None:
    rows = torch.zeros(4, HIDDEN).to(dtype)
    rows[3, 5] = bad

    error = await refusal(stub, request_of(rows))

    assert (error.code, error.reason) == (StatusCode.INVALID_ARGUMENT, "NONFINITE_ROW")
    assert error.metadata == {"row": "3"}
    await still_scores(stub)


async def test_a_row_that_overflows_in_the_scorer_gives_no_nan(stub: Any) -> None:
    rows = torch.zeros(3, HIDDEN)
    rows[1] = 3e38 * torch.sign(WEIGHTS["net.0.weight"][0])

    error = await refusal(stub, request_of(rows))

    assert (error.reason, error.metadata) == ("NONFINITE_ROW", {"row": "1"})
    await still_scores(stub)


def other_size(request: pb.ScoreRequest) -> None:
    request.rows.CopyFrom(request_of(torch.zeros(1, 8)).rows)


def other_model(request: pb.ScoreRequest) -> None:
    request.model_fingerprint = "another-model"


def no_model(request: pb.ScoreRequest) -> None:
    request.model_fingerprint = ""


def other_rule(request: pb.ScoreRequest) -> None:
    request.boundary_rule = "every_comma"


@pytest.mark.parametrize(
    ("change", "metadata"),
    [
        (other_size, {"hidden_size": "16", "request_hidden_size": "8"}),
        (other_model, {"model_fingerprint": "a-model", "request_model_fingerprint": "another-model"}),
        (no_model, {"model_fingerprint": "a-model", "request_model_fingerprint": ""}),
        (other_rule, {"boundary_rule": "blank_line", "request_boundary_rule": "every_comma"}),
    ],
)
async def test_rows_that_the_scorer_was_not_trained_for_are_refused(
    stub: Any, change: Any, metadata: dict[str, str]
) -> None:
    request = request_of(torch.zeros(1, HIDDEN))
    change(request)

    error = await refusal(stub, request)

    assert (error.code, error.reason) == (StatusCode.FAILED_PRECONDITION, "SCORER_MISMATCH")
    assert error.metadata == metadata
    assert all(name.removeprefix("request_") in error.message for name in metadata)
    await still_scores(stub)


async def test_what_is_not_recorded_is_not_checked_but_the_hidden_size() -> None:
    unrecorded: Metadata = replace(TRAINED_FOR, model_fingerprint="", boundary_rule="")
    async with served(unrecorded) as worker, open_channel(worker.target) as channel:
        stub: Any = ScorerServiceStub(channel)
        request = request_of(torch.zeros(1, HIDDEN))
        other_model(request)
        other_rule(request)
        await stub.Score(request)

        other_size(request)
        assert (await refusal(stub, request)).metadata.keys() == {"hidden_size", "request_hidden_size"}


async def test_a_bad_call_leaves_its_neighbours_alone(stub: Any) -> None:
    bad = torch.full((3, HIDDEN), float("nan"))
    good = torch.ones(2, HIDDEN)

    outcomes = await asyncio.gather(
        *(stub.Score(request_of(bad if n % 3 == 0 else good)) for n in range(30)), return_exceptions=True
    )

    expected = pytest.approx(direct_scores(WEIGHTS, good), abs=1e-6)
    for n, outcome in enumerate(outcomes):
        if n % 3 == 0:
            assert isinstance(outcome, AioRpcError)
        else:
            assert scores_of(outcome) == expected
