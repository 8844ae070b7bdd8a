"""The model of the extra slim_sc, and others in the same format."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from decoder_worker.embedding import choice
from decoder_worker.embedding.base import Embedder, EmbedderError
from decoder_worker.embedding.choice import embedder_loader, packaged
from decoder_worker.embedding.sentence_encoder import SentenceEncoder, folder_of, pooling_of


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    load = embedder_loader(None)
    assert load is not None, "requirements/cpu.txt has the model"
    return load()


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def test_the_packaged_model_gives_what_its_makers_say(embedder: Embedder) -> None:
    weather, sunny, drove = embedder.embed(
        ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    )
    assert len(weather) == 384
    # the similarities in the documentation of sentence-transformers
    assert cosine(weather, sunny) == pytest.approx(0.6660, abs=1e-3)
    assert cosine(weather, drove) == pytest.approx(0.1046, abs=1e-3)
    assert cosine(sunny, drove) == pytest.approx(0.1411, abs=1e-3)


def test_vectors_have_length_1_and_do_not_depend_on_their_company(embedder: Embedder) -> None:
    texts = ["so that 7 * 23 = 161", "161 mod 100 = 61, " * 20, "", " "]
    together = embedder.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        (alone,) = embedder.embed([text])
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5)
        assert cosine(vector, alone) == pytest.approx(1.0, abs=1e-5)


def test_a_long_text_is_cut_where_the_model_ends(embedder: Embedder) -> None:
    one, other = embedder.embed(["word " * 300, "word " * 300 + "and something else entirely"])
    assert cosine(one, other) == pytest.approx(1.0, abs=1e-5)


def folder(tmp_path: Path, pooling: dict[str, Any] | None, *kinds: str) -> Path:
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}", "type": f"a.b.{kind}"}
        for i, kind in enumerate(kinds)
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    if pooling is not None:
        (tmp_path / "1_Pooling").mkdir()
        (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return tmp_path


@pytest.mark.parametrize(
    ("pooling", "name"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "lasttoken"}, "lasttoken"),
        ({}, "mean"),
    ],
)
def test_poolings_by_name(tmp_path: Path, pooling: dict[str, Any], name: str) -> None:
    assert pooling_of(folder(tmp_path, pooling, "Transformer", "Pooling", "Normalize")) == name


def test_a_plain_encoder_pools_by_the_mean(tmp_path: Path) -> None:
    assert pooling_of(tmp_path) == "mean"


def test_what_is_not_supported_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=r"modules Dense; supported: Transformer, Pooling, Normalize"):
        pooling_of(folder(tmp_path, None, "Transformer", "Dense"))
    with pytest.raises(
        EmbedderError, match=r"pools by pooling_mode_max_tokens; supported: mean, cls, lasttoken"
    ):
        pooling_of(folder(tmp_path, {"pooling_mode_max_tokens": True}, "Transformer", "Pooling"))


@pytest.mark.parametrize("pooling", ["cls", "lasttoken"])
def test_other_poolings_take_one_token(tmp_path: Path, pooling: str) -> None:
    source = packaged()
    assert source is not None
    copy = tmp_path / "model"
    shutil.copytree(source, copy)
    (copy / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    encoder = SentenceEncoder(copy)
    alone = [encoder.embed([text])[0] for text in ("short", "a longer text than the other one")]
    together = encoder.embed(["short", "a longer text than the other one"])
    assert [cosine(a, b) for a, b in zip(alone, together, strict=True)] == pytest.approx([1.0, 1.0], abs=1e-5)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match=f"no model can be loaded from {tmp_path}"):
        SentenceEncoder(tmp_path)


def test_a_name_that_is_not_to_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: list[str] = []

    def away(name: str, **options: Any) -> str:
        asked.append(name)
        raise ConnectionError("no way there")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", away)
    with pytest.raises(EmbedderError, match=r"no folder nowhere, and no model .*no way there"):
        folder_of("nowhere")
    with pytest.raises(EmbedderError):
        folder_of("somebody/else")
    assert asked == ["sentence-transformers/nowhere", "somebody/else"]


def test_without_the_extra_and_without_a_setting_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "PACKAGE", "not_installed_at_all")
    assert packaged() is None
    assert embedder_loader(None) is None
    assert embedder_loader("some/model") is not None
