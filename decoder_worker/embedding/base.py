"""The embedder seam: what a search needs to know how alike two thoughts are."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Protocol


class EmbedderError(RuntimeError):
    """The model cannot be loaded; the message says why."""


class Embedder(Protocol):
    """Texts to vectors. It blocks, and is called by one thread at a time."""

    def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        """A vector of length 1 for each text, in their order, all of one size."""
        ...
