"""Boundary rows as a Score call carries them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decoder_worker.engine.base import HiddenRow
from decoder_worker.scoring.texts import ThoughtTexts
from decoder_worker.tree_view import Trace
from thoughtbeam.v1 import scoring_pb2 as pb

_DTYPES = {
    "float32": (pb.DATA_TYPE_FLOAT32, 4),
    "float16": (pb.DATA_TYPE_FLOAT16, 2),
    "bfloat16": (pb.DATA_TYPE_BFLOAT16, 2),
}
HISTORY_BYTES = 2  # of a value in a history: float16
_TRACE_BYTES = 128  # of a trace in a call, apart from its rows: generous


@dataclass(frozen=True, slots=True)
class BoundaryRow:
    """One boundary to score. tree_id: see `scoring_id`. thought: its index in the trace's own thoughts, from
    0; first_thought: its index in the whole trace, inherited thoughts counted. trace: for a scorer that keeps
    a history. texts: for one that reads texts. confidence: mean over the thought's tokens, where the engine
    gave them."""

    tree_id: str
    node: int
    thought: int
    first_thought: int
    row: HiddenRow
    trace: Trace | None = None
    texts: ThoughtTexts | None = None
    confidence: float | None = None


@dataclass(slots=True, eq=False)
class Run:
    """Consecutive thoughts of one trace in a call. rows: indices. first: see TraceRows.first_thought.
    history: in answer to NeedHistory."""

    rows: list[int]
    first: int
    history: bytes = b""


def scoring_id(tree_id: str, epoch: int) -> str:
    """What scorers know a tree by. Each owner has a name of its own for it: where it goes on from what was
    stored, an earlier owner may have given the same numbers to other nodes, and may not know yet that it has
    lost the tree."""
    return f"{tree_id}@{epoch}"


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


def request_order(rows: Sequence[BoundaryRow], *, history: bool = False) -> list[Run]:
    """The rows grouped by trace. history: those of a trace follow each other, whatever lay between them was
    never scored; they are counted from what has been scored. Else each group is a run of consecutive
    thoughts."""
    by_trace: dict[tuple[str, int], list[Run]] = {}
    for index, row in enumerate(rows):
        runs = by_trace.setdefault((row.tree_id, row.node), [])
        if runs and (history or rows[runs[-1].rows[-1]].first_thought + 1 == row.first_thought):
            runs[-1].rows.append(index)
        else:
            scored = row.trace.scored if history and row.trace is not None else row.first_thought
            runs.append(Run([index], scored))
    return [run for runs in by_trace.values() for run in runs]


def run_bytes(rows: Sequence[BoundaryRow], run: Run) -> int:
    """What a run takes in a message, at most."""
    return _TRACE_BYTES + len(run.history) + sum(len(rows[index].row.data) for index in run.rows)


def encode_request(
    rows: Sequence[BoundaryRow],
    runs: Sequence[Run],
    model_fingerprint: str,
    boundary_rule: str,
    history_size: int = 0,
) -> pb.ScoreRequest:
    """A Score call with the rows in the order of `runs`. All rows have the dtype and length of the first."""
    first = rows[runs[0].rows[0]].row
    code, item_bytes = _DTYPES[first.dtype]
    count = sum(len(run.rows) for run in runs)
    return pb.ScoreRequest(
        model_fingerprint=model_fingerprint,
        boundary_rule=boundary_rule,
        rows=pb.Tensor(
            dtype=code,
            shape=[count, len(first.data) // item_bytes],
            data=b"".join(rows[index].row.data for run in runs for index in run.rows),
        ),
        traces=[_trace_rows(rows[run.rows[0]], run, history_size) for run in runs],
    )


def _trace_rows(row: BoundaryRow, run: Run, history_size: int) -> pb.TraceRows:
    message = pb.TraceRows(tree_id=row.tree_id, node=row.node, first_thought=run.first, rows=len(run.rows))
    if history_size and row.trace is not None and row.trace.parent is not None:
        message.parent, message.fork_thought = row.trace.parent.number, row.trace.inherited_scored
    if run.history:
        thoughts = len(run.history) // (HISTORY_BYTES * history_size)
        tensor = pb.Tensor(dtype=pb.DATA_TYPE_FLOAT16, shape=[thoughts, history_size], data=run.history)
        message.history.CopyFrom(tensor)
    return message


def decode_scores(tensor: pb.Tensor, count: int) -> Sequence[float | None]:
    """Scores of an answer: NaN for a row that cannot be scored, None for what is no number in [0, 1], and for
    all when their count is wrong."""
    if tensor.dtype != pb.DATA_TYPE_FLOAT32 or len(tensor.data) != 4 * count:
        return [None] * count
    values = np.frombuffer(tensor.data, "<f4").tolist()
    return [value if math.isnan(value) or 0.0 <= value <= 1.0 else None for value in values]


def decode_projected(tensor: pb.Tensor, count: int, history_size: int) -> Sequence[bytes] | None:
    """The projected rows of an answer; none are expected where `history_size` is 0. None: they are not as
    they should be."""
    row_bytes = HISTORY_BYTES * history_size
    if not row_bytes:
        return [b""] * count
    if tensor.dtype != pb.DATA_TYPE_FLOAT16 or len(tensor.data) != row_bytes * count:
        return None
    return [tensor.data[i * row_bytes : (i + 1) * row_bytes] for i in range(count)]
