"""Models in the format of sentence-transformers, run by transformers: an encoder, pooling, length 1.

What such a model needs beyond that is refused; none of the library itself is imported.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decoder_worker.embedding.base import EmbedderError

ORGANISATION = "sentence-transformers"  # whose models are known by their last name alone
MODULES = ("Transformer", "Pooling", "Normalize")
POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]


class SentenceEncoder:
    """The `Embedder` on a CPU. A text is cut after the tokens that the model takes."""

    def __init__(self, folder: Path) -> None:
        """Raises EmbedderError for a folder without such a model."""
        self._pooling = pooling_of(folder)
        try:
            self._load(folder)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise EmbedderError(f"no model can be loaded from {folder}: {error}") from error

    def _load(self, folder: Path) -> None:
        import torch
        from transformers import AutoModel, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        # half of the cores: the engine's processes may need the others
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._model: Any = AutoModel.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, use_safetensors=True
        ).eval()
        most = (
            getattr(self._model.config, "max_position_embeddings", None) or self._tokenizer.model_max_length
        )
        self._most = min(_read(folder / "sentence_bert_config.json").get("max_seq_length") or most, most)

    def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        import torch

        inputs = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._most, return_tensors="pt"
        )
        with torch.inference_mode():
            hidden = self._model(**inputs).last_hidden_state
            pooled = self._pool(hidden, inputs["attention_mask"])
            vectors = torch.nn.functional.normalize(pooled, dim=1)
        return [array("f", vector) for vector in vectors.tolist()]

    def _pool(self, hidden: Any, mask: Any) -> Any:
        """[texts, tokens, size] and what of the tokens is text to [texts, size]."""
        if self._pooling == "mean":
            weights = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1)
        # padding may be on either side
        places = mask.argmax(1) if self._pooling == "cls" else mask.cumsum(1).argmax(1)
        return hidden[range(len(hidden)), places]


def pooling_of(folder: Path) -> str:
    """How the tokens' vectors become one: `mean`, `cls` or `lasttoken`. Raises EmbedderError for what is not
    known."""
    modules = _read(folder / "modules.json")
    if not modules:
        return "mean"
    kinds = [module["type"].rsplit(".", 1)[-1] for module in modules]
    if unknown := [kind for kind in kinds if kind not in MODULES]:
        raise EmbedderError(f"{folder} has modules {', '.join(unknown)}; supported: {', '.join(MODULES)}")
    path = next((module["path"] for module in modules if module["type"].endswith("Pooling")), None)
    settings = _read(folder / path / "config.json") if path is not None else {}
    chosen = [
        POOLINGS.get(name, name) for name, on in settings.items() if name.startswith("pooling_mode_") and on
    ]
    found = settings.get("pooling_mode") or (chosen[0] if len(chosen) == 1 else "mean" if not chosen else "")
    if found not in POOLINGS.values():
        raise EmbedderError(
            f"{folder} pools by {', '.join(chosen) or found}; supported: {', '.join(POOLINGS.values())}"
        )
    return str(found)


def folder_of(model: str) -> Path:
    """The folder of a model by its name or path; a name is downloaded unless it was before.

    Raises EmbedderError when it is not to be had.
    """
    if Path(model).is_dir():
        return Path(model)
    from huggingface_hub import snapshot_download

    name = model if "/" in model else f"{ORGANISATION}/{model}"
    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:  # its own errors, those of the connection, and ValueError for a bad name
        raise EmbedderError(f"no folder {model}, and no model {name} to be downloaded: {error}") from error


def _read(file: Path) -> Any:
    return json.loads(file.read_text()) if file.is_file() else {}
