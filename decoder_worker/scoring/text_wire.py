"""Thoughts as a ScoreText call carries them: for a scorer that reads text (kind `process_reward`)."""

from __future__ import annotations

from collections.abc import Sequence

from decoder_worker.scoring.wire import BoundaryRow, Run
from thoughtbeam.v1 import scoring_pb2 as pb

_STEP_BYTES = 8  # of a step apart from its text: generous


def encode_texts(rows: Sequence[BoundaryRow], runs: Sequence[Run]) -> list[pb.TraceText]:
    """The traces of the runs, each with all its thoughts up to the run's last; the run is to be scored."""
    return [_trace_text([rows[index] for index in run.rows]) for run in runs]


def text_bytes(trace: pb.TraceText) -> int:
    """What it takes in a message, about."""
    return trace.ByteSize() + _STEP_BYTES


def _trace_text(run: Sequence[BoundaryRow]) -> pb.TraceText:
    first, last = run[0], run[-1]
    assert first.trace is not None
    assert first.texts is not None, "a search with a text scorer gives them"
    return pb.TraceText(
        tree_id=first.tree_id,
        node=first.node,
        messages=[pb.TraceText.Message(role=role, content=text) for role, text in first.texts.messages],
        steps=first.texts.steps(first.trace, last.first_thought + 1),
        first_step=first.first_thought,
    )
