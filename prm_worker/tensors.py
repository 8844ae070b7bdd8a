"""Tensors on the wire: raw little-endian values that are checked before they are used."""

from __future__ import annotations

import math

import numpy as np

from prm_worker.scorers.base import Float16Array, Float32Array
from thoughtbeam.runtime.status import StatusError, Violation, invalid
from thoughtbeam.v1 import scoring_pb2 as pb

ITEM_BYTES = {pb.DATA_TYPE_FLOAT32: 4, pb.DATA_TYPE_FLOAT16: 2, pb.DATA_TYPE_BFLOAT16: 2}


def decode_rows(tensor: pb.Tensor, max_rows: int) -> Float32Array:
    """Boundary rows as float32 [rows, hidden size].

    Raises INVALID_ARGUMENT (StatusError) naming the field and what is allowed: unknown dtype, rank other than
    2, no rows or more than max_rows, data of another length; with reason NONFINITE_ROW the first row that
    holds NaN or an infinity.
    """
    _check(tensor, max_rows)
    values = _to_float32(tensor).reshape(tuple(tensor.shape))
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise nonfinite_row(int(finite.argmin()), "holds values that are not finite")
    return values


def nonfinite_row(row: int, what: str) -> StatusError:
    """INVALID_ARGUMENT/NONFINITE_ROW for one row, its index in the metadata."""
    error = invalid(Violation("rows.data", f"row {row} {what}"), reason="NONFINITE_ROW")
    error.metadata = {"row": str(row)}
    return error


def encode_scores(scores: Float32Array) -> pb.Tensor:
    """Scores as a float32 tensor [rows]."""
    return pb.Tensor(
        dtype=pb.DATA_TYPE_FLOAT32, shape=[len(scores)], data=scores.astype("<f4", copy=False).tobytes()
    )


def decode_history(tensor: pb.Tensor, field: str, most: int, history_size: int) -> Float16Array:
    """Projected rows as float16 [thoughts, history size]. field: its path in the request. most: thoughts.

    Raises INVALID_ARGUMENT (StatusError) naming the field and what is allowed.
    """
    if tensor.dtype != pb.DATA_TYPE_FLOAT16:
        raise invalid(Violation(f"{field}.dtype", f"is {tensor.dtype}; it must be DATA_TYPE_FLOAT16"))
    shape = list(tensor.shape)
    if len(shape) != 2 or shape[1] != history_size or shape[0] > most:
        allowed = f"[at most {most} thoughts, {history_size}]"
        raise invalid(Violation(f"{field}.shape", f"is {shape[:3]}; it must be {allowed}"))
    if len(tensor.data) != 2 * math.prod(shape):
        wrong = f"has {len(tensor.data)} bytes; shape {shape} takes exactly {2 * math.prod(shape)}"
        raise invalid(Violation(f"{field}.data", wrong))
    values: Float16Array = np.frombuffer(tensor.data, dtype="<f2").astype(np.float16).reshape(shape)
    if not np.isfinite(values).all():
        raise invalid(Violation(f"{field}.data", "holds values that are not finite"))
    return values


def encode_projected(projected: Float16Array) -> pb.Tensor:
    """Projected rows as a float16 tensor [rows, history size]."""
    data = projected.astype("<f2", copy=False).tobytes()
    return pb.Tensor(dtype=pb.DATA_TYPE_FLOAT16, shape=list(projected.shape), data=data)


def _check(tensor: pb.Tensor, max_rows: int) -> None:
    if tensor.dtype not in ITEM_BYTES:
        known = ", ".join(pb.DataType.Name(dtype) for dtype in ITEM_BYTES)
        raise invalid(Violation("rows.dtype", f"is {tensor.dtype}; it must be one of {known}"))
    shape = list(tensor.shape)
    if len(shape) != 2:
        raise invalid(Violation("rows.shape", f"has {len(shape)} dimensions; it must be [rows, hidden size]"))
    if not 1 <= shape[0] <= max_rows:
        raise invalid(Violation("rows.shape", f"has {shape[0]} rows; there must be 1 to {max_rows}"))
    if shape[1] < 1:
        raise invalid(Violation("rows.shape", "has hidden size 0; it must be at least 1"))
    expected = math.prod(shape) * ITEM_BYTES[tensor.dtype]
    if len(tensor.data) != expected:
        dtype = pb.DataType.Name(tensor.dtype)
        raise invalid(
            Violation(
                "rows.data",
                f"has {len(tensor.data)} bytes; shape {shape} of {dtype} takes exactly {expected}",
            )
        )


def _to_float32(tensor: pb.Tensor) -> Float32Array:
    if tensor.dtype == pb.DATA_TYPE_FLOAT32:
        return np.frombuffer(tensor.data, dtype="<f4")
    if tensor.dtype == pb.DATA_TYPE_FLOAT16:
        return np.frombuffer(tensor.data, dtype="<f2").astype(np.float32)
    # a bfloat16 is the upper half of a float32
    return (np.frombuffer(tensor.data, dtype="<u2").astype(np.uint32) << 16).view(np.float32)
