"""A fingerprint follows the model's content and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decoder_worker.engine.fingerprint import model_fingerprint


def make_model(directory: Path, *, weights: bytes = b"weights" * 400_000, **config: object) -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps({"hidden_size": 8, "dtype": "bfloat16", **config}))
    (directory / "model.safetensors").write_bytes(weights)
    return directory


def test_a_copy_and_a_resave_have_the_same_fingerprint(tmp_path: Path) -> None:
    first = make_model(tmp_path / "a", transformers_version="5.19.0")
    second = make_model(tmp_path / "elsewhere" / "b", transformers_version="4.57.1", _name_or_path="x/y")
    assert model_fingerprint(first) == model_fingerprint(str(second))
    assert len(model_fingerprint(first)) == 32


def test_other_shape_or_other_weights_have_another(tmp_path: Path) -> None:
    base = b"w" * 3_000_000
    fingerprints = {
        model_fingerprint(make_model(tmp_path / "base", weights=base)),
        model_fingerprint(make_model(tmp_path / "shape", weights=base, num_hidden_layers=5)),
        model_fingerprint(make_model(tmp_path / "head", weights=b"x" + base[1:])),
        model_fingerprint(make_model(tmp_path / "tail", weights=base[:-1] + b"x")),
        model_fingerprint(make_model(tmp_path / "size", weights=base + b"w")),
    }
    assert len(fingerprints) == 5


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        model_fingerprint(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="no weights"):
        model_fingerprint(tmp_path)
