"""The scorer seam of hidden-state scorers: boundary rows in, one quality number per row out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# [rows, hidden size] going in, [rows] coming out
Float32Array: TypeAlias = npt.NDArray[np.float32]
Float16Array: TypeAlias = npt.NDArray[np.float16]


class Scorer(Protocol):
    """A trained scorer. Calls come from one thread.

    kind: as in a scorer file, for example `mlp`. hidden_size: width of the rows it takes. scorer_id: digest
    of its weights and its calibration.
    """

    @property
    def kind(self) -> str: ...

    @property
    def hidden_size(self) -> int: ...

    @property
    def scorer_id(self) -> str: ...

    def score(self, rows: Float32Array) -> Float32Array:
        """Scores of finite rows, float32 [rows, hidden size] to float32 [rows], each in [0, 1]. A row so
        large that it overflows inside gives NaN. A scorer that keeps histories takes each row for the first
        thought of a trace, and keeps nothing of it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TracePart:
    """Consecutive thoughts of one trace: TraceRows of scoring.proto.

    first: thoughts of the trace that have been scored before. rows: how many now. parent, fork: of a branch,
    the trace with which it shares its first `fork` thoughts. history: projected rows of the thoughts before
    `first`, finite float16 [at most first, history size]; None: not sent.
    """

    tree_id: str
    node: int
    first: int
    rows: int
    parent: int | None = None
    fork: int = 0
    history: Float16Array | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """What became of rows.

    scores: float32 [rows]; NaN for a row that overflows (then nothing of its part is kept), and for the rows
    of `need_history`. projected: float16 [rows, history size], with zeros where there is no score.
    need_history: index of a part → the first thought whose projected row is wanted.
    """

    scores: Float32Array
    projected: Float16Array | None = None
    need_history: Mapping[int, int] = field(default_factory=dict)


@runtime_checkable
class HistoryScorer(Scorer, Protocol):
    """A scorer that sees all thoughts of a trace, and keeps what it needs of them between calls.

    history_size: values of a projected row. max_thoughts: of one trace.
    """

    @property
    def history_size(self) -> int: ...

    @property
    def max_thoughts(self) -> int: ...

    def score_parts(self, rows: Float32Array, parts: Sequence[TracePart]) -> Scored:
        """Scores of the rows of all parts, in their order; what is kept of a trace is cut to `first` before
        the part's rows follow."""
        ...

    def drop(self, tree_id: str, nodes: Sequence[int]) -> None:
        """Forgets traces; none named: all of the tree."""
        ...


def digest(kind: str, weights: Mapping[str, Tensor], calibration: Mapping[str, Any]) -> str:
    """scorer_id: 16 hexadecimal digits of a hash of what scores follow from. calibration: as in a scorer
    file."""
    found = hashlib.sha256(kind.encode())
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        found.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    found.update(json.dumps(dict(calibration), sort_keys=True).encode())
    return found.hexdigest()[:16]
