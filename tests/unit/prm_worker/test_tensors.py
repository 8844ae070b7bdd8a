"""Tensors on the wire: what is accepted is exact, the rest is refused by field."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from prm_worker.tensors import decode_rows, encode_scores
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import scoring_pb2 as pb

DTYPES = {
    pb.DATA_TYPE_FLOAT32: torch.float32,
    pb.DATA_TYPE_FLOAT16: torch.float16,
    pb.DATA_TYPE_BFLOAT16: torch.bfloat16,
}


def tensor_of(values: torch.Tensor, dtype: int = pb.DATA_TYPE_FLOAT32) -> pb.Tensor:
    data = values.to(DTYPES[dtype]).view(torch.uint8).numpy().tobytes()
    return pb.Tensor(dtype=dtype, shape=list(values.shape), data=data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_gives_its_exact_values(dtype: int) -> None:
    values = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 100
    values[0, :3] = torch.tensor([0.0, -0.0, 1e-7])

    decoded = decode_rows(tensor_of(values, dtype), max_rows=5)

    assert decoded.dtype == np.float32
    assert np.array_equal(decoded, values.to(DTYPES[dtype]).float().numpy())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_row_that_is_not_finite_is_named(dtype: int, bad: float) -> None:
    values = torch.zeros(4, 3)
    values[2, 1] = bad
    values[3, 0] = bad

    with pytest.raises(StatusError) as caught:
        decode_rows(tensor_of(values, dtype), max_rows=8)

    assert caught.value.reason == "NONFINITE_ROW"
    assert caught.value.metadata == {"row": "2"}
    assert caught.value.violations[0].field == "rows.data"


GOOD = tensor_of(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("change", "field", "description"),
    [
        ({"dtype": pb.DATA_TYPE_UNSPECIFIED}, "rows.dtype", "must be one of DATA_TYPE_FLOAT32, DATA_TYPE_FL"),
        ({"dtype": 77}, "rows.dtype", "is 77"),
        ({"shape": [6]}, "rows.shape", "has 1 dimensions; it must be [rows, hidden size]"),
        ({"shape": [1, 2, 3]}, "rows.shape", "has 3 dimensions"),
        ({"shape": []}, "rows.shape", "has 0 dimensions"),
        ({"shape": [0, 3]}, "rows.shape", "has 0 rows; there must be 1 to 4"),
        ({"shape": [5, 3]}, "rows.shape", "has 5 rows; there must be 1 to 4"),
        ({"shape": [2, 0]}, "rows.shape", "has hidden size 0"),
        ({"shape": [2, 4]}, "rows.data", "has 24 bytes; shape [2, 4] of DATA_TYPE_FLOAT32 takes exactly 32"),
        ({"dtype": pb.DATA_TYPE_FLOAT16}, "rows.data", "takes exactly 12"),
        ({"data": b"\0" * 23}, "rows.data", "has 23 bytes"),
        ({"data": b""}, "rows.data", "has 0 bytes"),
        ({"shape": [4, 2**32 - 1]}, "rows.data", "takes exactly 68719476720"),
    ],
)
def test_malformed_tensors_are_refused_by_field(
    change: dict[str, object], field: str, description: str
) -> None:
    fields = {"dtype": GOOD.dtype, "shape": list(GOOD.shape), "data": GOOD.data, **change}

    with pytest.raises(StatusError) as caught:
        decode_rows(pb.Tensor(**fields), max_rows=4)  # type: ignore[arg-type]

    assert caught.value.code.name == "INVALID_ARGUMENT"
    assert caught.value.reason == "INVALID_FIELD"
    assert caught.value.violations[0].field == field
    assert description in caught.value.violations[0].description


def test_scores_are_little_endian_float32() -> None:
    tensor = encode_scores(np.array([0.25, 1.0], dtype=np.float32))
    assert (tensor.dtype, list(tensor.shape)) == (pb.DATA_TYPE_FLOAT32, [2])
    assert tensor.data == b"\x00\x00\x80\x3e\x00\x00\x80\x3f"
