"""Boundary rows as a Score call carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoder_worker.engine.base import HiddenRow
from thoughtbeam.v1 import scoring_pb2 as pb

_DTYPES = {
    "float32": (pb.DATA_TYPE_FLOAT32, 4),
    "float16": (pb.DATA_TYPE_FLOAT16, 2),
    "bfloat16": (pb.DATA_TYPE_BFLOAT16, 2),
}


@dataclass(frozen=True, slots=True)
class BoundaryRow:
    """One boundary to score. thought: its index in the trace's own thoughts, from 0; first_thought: its index
    in the whole trace, inherited thoughts counted."""

    tree_id: str
    node: int
    thought: int
    first_thought: int
    row: HiddenRow


def is_finite(row: HiddenRow) -> bool:
    """Whether a row holds neither NaN nor an infinity. Raises ValueError for a malformed row."""
    if row.dtype not in _DTYPES:
        raise ValueError(f"dtype {row.dtype!r} of a hidden row; it must be one of {', '.join(_DTYPES)}")
    item_bytes = _DTYPES[row.dtype][1]
    if not row.data or len(row.data) % item_bytes:
        raise ValueError(
            f"a hidden row of {len(row.data)} bytes; it must hold whole {row.dtype} values, at least one"
        )
    if row.dtype == "bfloat16":  # all exponent bits set
        return not bool((np.frombuffer(row.data, "<u2") & 0x7F80 == 0x7F80).any())
    return bool(np.isfinite(np.frombuffer(row.data, f"<f{item_bytes}")).all())


def request_order(rows: Sequence[BoundaryRow]) -> list[list[int]]:
    """Indices of the rows grouped by trace, each group a run of consecutive thoughts."""
    by_trace: dict[tuple[str, int], list[list[int]]] = {}
    for index, row in enumerate(rows):
        runs = by_trace.setdefault((row.tree_id, row.node), [])
        if runs and rows[runs[-1][-1]].first_thought + 1 == row.first_thought:
            runs[-1].append(index)
        else:
            runs.append([index])
    return [run for runs in by_trace.values() for run in runs]


def encode_request(
    rows: Sequence[BoundaryRow], runs: Sequence[Sequence[int]], model_fingerprint: str, boundary_rule: str
) -> pb.ScoreRequest:
    """A Score call with the rows in the order of `runs`. All rows have the dtype and length of the first."""
    code, item_bytes = _DTYPES[rows[0].row.dtype]
    return pb.ScoreRequest(
        model_fingerprint=model_fingerprint,
        boundary_rule=boundary_rule,
        rows=pb.Tensor(
            dtype=code,
            shape=[len(rows), len(rows[0].row.data) // item_bytes],
            data=b"".join(rows[index].row.data for run in runs for index in run),
        ),
        traces=[
            pb.TraceRows(
                tree_id=rows[run[0]].tree_id,
                node=rows[run[0]].node,
                first_thought=rows[run[0]].first_thought,
                rows=len(run),
            )
            for run in runs
        ],
    )


def decode_scores(tensor: pb.Tensor, count: int) -> Sequence[float | None]:
    """Scores of an answer; None for each that is no number in [0, 1], for all when their count is wrong."""
    if tensor.dtype != pb.DATA_TYPE_FLOAT32 or len(tensor.data) != 4 * count:
        return [None] * count
    values = np.frombuffer(tensor.data, "<f4").tolist()
    return [value if 0.0 <= value <= 1.0 else None for value in values]
