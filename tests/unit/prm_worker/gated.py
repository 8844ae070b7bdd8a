"""A scorer that a test can hold in the middle of a pass."""

from __future__ import annotations

import threading

from torch import Tensor

from prm_worker.scorers.base import Float32Array
from prm_worker.scorers.mlp import MlpScorer


class GatedScorer:
    """The MLP scorer, whose passes wait for a gate; notes the size of each."""

    kind = "mlp"

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.sizes: list[int] = []
        self.threads: set[int] = set()
        self.broken = False
        self._scorer = MlpScorer(weights)
        self.hidden_size = self._scorer.hidden_size
        self.scorer_id = self._scorer.scorer_id

    def score(self, rows: Float32Array) -> Float32Array:
        self.entered.set()
        assert self.gate.wait(10)
        if self.broken:
            raise RuntimeError("out of memory")
        self.sizes.append(len(rows))
        self.threads.add(threading.get_ident())
        return self._scorer.score(rows)
