"""The scorer seam of hidden-state scorers: boundary rows in, one quality number per row out."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

# [rows, hidden size] going in, [rows] coming out
Float32Array: TypeAlias = npt.NDArray[np.float32]


class Scorer(Protocol):
    """A trained scorer. Calls come from one thread.

    kind: as in a scorer file, for example `mlp`. hidden_size: width of the rows it takes.
    """

    @property
    def kind(self) -> str: ...

    @property
    def hidden_size(self) -> int: ...

    def score(self, rows: Float32Array) -> Float32Array:
        """Scores of finite rows, float32 [rows, hidden size] to float32 [rows], each in [0, 1]. A row so
        large that it overflows inside gives NaN."""
        ...
