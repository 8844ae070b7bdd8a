"""How rows are put into a Score call, and what of an answer is believed."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
import torch

from decoder_worker.engine.base import HiddenRow
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.scoring.wire import (
    BoundaryRow,
    Run,
    decode_scores,
    encode_request,
    is_finite,
    request_order,
)
from thoughtbeam.v1 import scoring_pb2 as pb

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def hidden(values: list[float], dtype: str = "float32") -> HiddenRow:
    data = torch.tensor(values).to(DTYPES[dtype]).view(torch.uint8).numpy().tobytes()
    return HiddenRow(position=0, data=data, dtype=dtype)


def boundary(tree_id: str, node: int, first_thought: int, value: float = 0.0) -> BoundaryRow:
    return BoundaryRow(tree_id, node, first_thought, first_thought, hidden([value]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_rows_pass_up_to_the_largest_value(dtype: str) -> None:
    largest = torch.finfo(DTYPES[dtype]).max
    smallest = torch.finfo(DTYPES[dtype]).tiny
    assert is_finite(hidden([0.0, -0.0, 1.5, smallest, largest, -largest], dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 3, 6])
def test_rows_that_are_not_finite_are_found(dtype: str, bad: float, place: int) -> None:
    values = [1.0] * 7
    values[place] = bad
    assert not is_finite(hidden(values, dtype))


def test_every_bfloat16_agrees_with_torch() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    expected = torch.isfinite(torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16)).numpy()
    found = [is_finite(HiddenRow(0, struct.pack("<H", value), "bfloat16")) for value in bits]
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    ("data", "dtype", "message"),
    [
        (
            b"\0" * 4,
            "float64",
            "dtype 'float64' of a hidden row; it must be one of float32, float16, bfloat16",
        ),
        (b"\0" * 6, "float32", "6 bytes; it must hold whole float32 values"),
        (b"\0" * 3, "bfloat16", "3 bytes"),
        (b"", "float32", "0 bytes"),
    ],
)
def test_malformed_rows_are_an_error_of_the_caller(data: bytes, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        is_finite(HiddenRow(0, data, dtype))


def test_rows_are_grouped_by_trace_in_runs_of_consecutive_thoughts() -> None:
    rows = [
        boundary("a", 1, 0, 0.0),
        boundary("b", 1, 4, 1.0),
        boundary("a", 1, 1, 2.0),
        boundary("a", 2, 7, 3.0),
        boundary("a", 1, 3, 4.0),
        boundary("b", 1, 5, 5.0),
    ]

    runs = request_order(rows)
    request = encode_request(rows, runs, "fingerprint", "rule")

    assert [run.rows for run in runs] == [[0, 2], [4], [1, 5], [3]]
    assert [(t.tree_id, t.node, t.first_thought, t.rows) for t in request.traces] == [
        ("a", 1, 0, 2),
        ("a", 1, 3, 1),
        ("b", 1, 4, 2),
        ("a", 2, 7, 1),
    ]
    assert (request.model_fingerprint, request.boundary_rule) == ("fingerprint", "rule")
    assert list(request.rows.shape) == [6, 1]
    assert np.frombuffer(request.rows.data, "<f4").tolist() == [0.0, 2.0, 4.0, 1.0, 5.0, 3.0]


@pytest.mark.parametrize(
    ("dtype", "wire"),
    [
        ("float32", pb.DATA_TYPE_FLOAT32),
        ("float16", pb.DATA_TYPE_FLOAT16),
        ("bfloat16", pb.DATA_TYPE_BFLOAT16),
    ],
)
def test_the_width_of_a_request_follows_the_dtype(dtype: str, wire: int) -> None:
    row = BoundaryRow("a", 1, 0, 0, hidden([1.0, 2.0, 3.0], dtype))
    request = encode_request([row], [Run([0], 0)], "", "")
    assert (request.rows.dtype, list(request.rows.shape)) == (wire, [1, 3])
    assert request.rows.data == row.row.data


def scores(*values: float, dtype: int = pb.DATA_TYPE_FLOAT32) -> pb.Tensor:
    return pb.Tensor(dtype=dtype, shape=[len(values)], data=np.array(values, "<f4").tobytes())


def test_only_numbers_between_0_and_1_are_scores() -> None:
    answer = scores(0.0, 1.0, 0.5, -0.01, 1.01, float("nan"), float("inf"))
    found = decode_scores(answer, 7)
    assert found[5] is not None
    assert math.isnan(found[5])  # which says that the row cannot be scored
    assert [score for i, score in enumerate(found) if i != 5] == [0.0, 1.0, 0.5, None, None, None]


def test_an_answer_of_another_length_or_dtype_scores_nothing() -> None:
    assert decode_scores(scores(0.5, 0.5), 3) == [None] * 3
    assert decode_scores(scores(0.5, 0.5), 1) == [None]
    assert decode_scores(scores(0.5, dtype=pb.DATA_TYPE_FLOAT16), 1) == [None]
    assert decode_scores(pb.Tensor(), 2) == [None, None]


def test_what_a_scorer_does_not_record_fits_every_engine() -> None:
    assert not ScorerInfo("mlp", 128, "", "", 64).differences("f", "blank_line", 128)
    assert not ScorerInfo("mlp", 128, "f", "blank_line", 64).differences("f", "blank_line", None)


def test_every_difference_is_named_with_both_values() -> None:
    differences = ScorerInfo("mlp", 128, "f", "r", 64).differences("g", "s", 64)
    assert differences == [
        "model_fingerprint f (the engine's is g)",
        "boundary_rule r (the engine's is s)",
        "hidden_size 128 (the engine's is 64)",
    ]
