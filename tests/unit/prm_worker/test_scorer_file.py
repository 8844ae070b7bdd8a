"""Scorer files: both layouts load, and nothing else does."""

from __future__ import annotations

import dataclasses
import os
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prm_worker.scorer_file import (
    Metadata,
    ScorerFile,
    ScorerFileError,
    check_writable,
    load_scorer,
    read_scorer_file,
    write_scorer_file,
)
from prm_worker.scorers.base import digest
from prm_worker.scorers.mlp import MlpScorer
from prm_worker.scorers.sequence import net_of
from tests.unit.prm_worker.weights import direct_scores, sequence_weights, step_weights
from thoughtbeam.models import BUNDLED_SCORER


def saved(path: Path, content: object) -> Path:
    torch.save(content, path)
    return path


def load(path: Path, content: object) -> Any:
    return load_scorer(saved(path, content))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "scorer.pt"


@pytest.mark.parametrize("width", [512, 64])
@pytest.mark.parametrize("hidden_size", [1, 128, 2560])
def test_public_layout_loads_bare(path: Path, hidden_size: int, width: int) -> None:
    weights = step_weights(hidden_size, width)
    rows = torch.randn(3, hidden_size, generator=torch.Generator().manual_seed(1))

    scorer, metadata = load(path, weights)

    assert metadata == Metadata("mlp", hidden_size)
    assert scorer.hidden_size == hidden_size
    assert scorer.score(rows.numpy()) == pytest.approx(direct_scores(weights, rows), abs=1e-6)


def test_public_layout_loads_beside_what_the_training_kept(path: Path) -> None:
    weights = step_weights(16)
    content = {
        "epoch": 7,
        "best_auc": 0.81,
        "args": {"lr": 1e-3},
        "optimizer_state_dict": {"state": {0: {"exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 0.1}]},
        "model_state_dict": {**weights, "num_batches_tracked": torch.tensor(3)},
    }

    scorer, _ = load(path, content)

    assert scorer.score(torch.zeros(1, 16).numpy()) == pytest.approx(
        direct_scores(weights, torch.zeros(1, 16)), abs=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_floating_dtype_are_computed_in_float32(path: Path, dtype: torch.dtype) -> None:
    weights = {name: tensor.to(dtype) for name, tensor in step_weights(8).items()}

    scorer, _ = load(path, weights)

    scores = scorer.score(torch.ones(1, 8).numpy())
    assert scores.dtype == "float32"
    assert scores == pytest.approx(direct_scores(weights, torch.ones(1, 8)), abs=1e-6)


def test_own_container_keeps_weights_and_metadata(path: Path) -> None:
    weights = step_weights(8)
    metadata = Metadata("mlp", 8, "0123abcd", "blank_line", {"data": {"traces": 12}, "figures": [0.5, 0.75]})

    write_scorer_file(path, ScorerFile(weights, metadata))
    stored = read_scorer_file(path)

    assert stored.metadata == metadata
    assert stored.weights.keys() == weights.keys()
    assert all(torch.equal(stored.weights[name], weights[name]) for name in weights)
    assert os.listdir(path.parent) == [path.name]


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can grow beyond a kilobyte."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_folders_above_a_file_are_made(path: Path) -> None:
    out = path.parent / "new" / "folder" / "scorer.pt"
    write_scorer_file(out, ScorerFile(step_weights(8), Metadata("mlp", 8)))
    assert os.listdir(out.parent) == [out.name]


@pytest.mark.parametrize("name", ["file/scorer.pt", "folder", "long" * 64])
def test_a_file_that_cannot_be_written_is_named_before_and_after_a_training(path: Path, name: str) -> None:
    (path.parent / "file").touch()
    (path.parent / "folder").mkdir()
    out = path.parent / name
    for write in (
        lambda: check_writable(out),
        lambda: write_scorer_file(out, ScorerFile(step_weights(8), Metadata("mlp", 8))),
    ):
        with pytest.raises(OSError, match=f"{name}: cannot be written: .*"):
            write()
        assert sorted(os.listdir(path.parent)) == ["file", "folder"]


def test_a_file_for_which_there_is_no_room_leaves_the_one_before(path: Path) -> None:
    write_scorer_file(path, ScorerFile(step_weights(8), Metadata("mlp", 8)))
    check_writable(path)
    with full_disk(), pytest.raises(OSError, match=r"scorer\.pt: cannot be written: .*"):
        write_scorer_file(path, ScorerFile(step_weights(16), Metadata("mlp", 16)))
    assert read_scorer_file(path).metadata.hidden_size == 8
    assert os.listdir(path.parent) == [path.name]


def test_bundled_scorer_is_one_of_our_own() -> None:
    scorer, metadata = load_scorer(BUNDLED_SCORER)

    assert (metadata.kind, metadata.hidden_size, metadata.boundary_rule) == ("mlp", 128, "blank_line")
    assert metadata.model_fingerprint
    assert sum(metadata.card["data"]["traces"].values()) == 3960
    assert metadata.calibration["kind"] == "temperature"
    assert 0 < scorer.score(torch.zeros(1, 128).numpy())[0] < 1


def test_a_sequence_scorer_is_stored_and_loaded(path: Path) -> None:
    weights = sequence_weights(24, width=32, layers=2, heads=2)
    write_scorer_file(path, ScorerFile(weights, Metadata("sequence", 24, "f", "r")))

    scorer, metadata = load_scorer(path, cache_dtype="float32")

    assert (metadata.kind, scorer.kind, scorer.hidden_size) == ("sequence", "sequence", 24)
    rows = torch.randn(3, 24, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        right = torch.sigmoid(net_of(weights)(rows[:, None], torch.ones(3, dtype=torch.int64)))[:, 0]
    assert scorer.score(rows.numpy()) == pytest.approx(right.numpy(), abs=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"blocks.0.w_q.weight": None}, r"blocks\.0\.w_q\.weight \[32, 32\] is missing"),
        (
            {"blocks.0.w_k.weight": torch.zeros(32, 8)},
            r"blocks\.0\.w_k\.weight has shape \[32, 8\]; it must be",
        ),
        ({"w_out.bias": torch.tensor([float("inf")])}, r"w_out\.bias holds values that are not finite"),
        ({"w_more": torch.zeros(1)}, "w_more is not a tensor of a sequence scorer"),
        ({"heads": torch.tensor(3)}, r"width a multiple of 2 \* heads"),
        ({"heads": torch.tensor(0)}, r"must be at least 1"),
        ({"heads": torch.tensor([4, 4])}, r"heads \[\] must be there"),
    ],
)
def test_weights_that_are_no_sequence_scorer_are_refused_by_name(
    path: Path, change: dict[str, torch.Tensor | None], message: str
) -> None:
    weights = {**sequence_weights(16, width=32), **change}
    content = {
        "model_state_dict": {name: tensor for name, tensor in weights.items() if tensor is not None},
        "thoughtbeam": {"format": 1, **dataclasses.asdict(Metadata("sequence", 16))},
    }
    with pytest.raises(ScorerFileError, match=message):
        load(path, content)


def test_files_of_before_have_no_calibration(path: Path) -> None:
    entry = dataclasses.asdict(Metadata("mlp", 8))
    del entry["calibration"]
    _, metadata = load(path, {"model_state_dict": step_weights(8), "thoughtbeam": {"format": 1, **entry}})
    assert metadata.calibration == {}


@pytest.mark.parametrize("kind", ["mlp", "sequence"])
def test_calibration_is_applied_by_every_scorer(path: Path, kind: str) -> None:
    weights = step_weights(16) if kind == "mlp" else sequence_weights(16, width=32)
    rows = torch.randn(20, 16, generator=torch.Generator().manual_seed(1)).numpy()

    def scores(calibration: dict[str, Any]) -> Any:
        metadata = Metadata(kind, 16, calibration=calibration)
        write_scorer_file(path, ScorerFile(weights, metadata))
        scorer, loaded = load_scorer(path)
        assert loaded == metadata
        return scorer.score(rows).astype(float)

    raw = scores({})
    softer = scores({"kind": "temperature", "temperature": 2.0, "bias": 0.5})
    stepped = scores({"kind": "isotonic", "scores": [0.4, 0.6], "values": [0.1, 0.9]})

    logits = np.log(raw / (1 - raw))
    assert softer == pytest.approx(1 / (1 + np.exp(-(logits + 0.5) / 2)), abs=1e-5)
    assert stepped == pytest.approx(np.clip(0.1 + (raw - 0.4) * 4, 0.1, 0.9), abs=1e-5)
    assert len(set(np.round(softer, 6))) > 10


def test_a_scorer_is_known_by_its_kind_and_weights() -> None:
    first, same, other = (MlpScorer(step_weights(16, seed=seed)).scorer_id for seed in (0, 0, 1))
    assert first == same != other
    assert len(first) == 16
    assert int(first, 16) >= 0
    assert digest("mlp", step_weights(16), {}) != digest("sequence", step_weights(16), {})


@pytest.mark.parametrize("kind", ["mlp", "sequence"])
def test_scorers_that_differ_in_their_calibration_are_known_apart(path: Path, kind: str) -> None:
    weights = {"mlp": step_weights(8), "sequence": sequence_weights(8, 32)}[kind]

    def scorer_id(calibration: dict[str, Any]) -> str:
        write_scorer_file(path, ScorerFile(weights, Metadata(kind, 8, calibration=calibration)))
        return load_scorer(path)[0].scorer_id

    calibrations: list[dict[str, Any]] = [
        {},
        {"kind": "temperature", "temperature": 2.0, "bias": 0.0},
        {"kind": "temperature", "temperature": 2.0, "bias": 0.5},
        {"kind": "isotonic", "scores": [0.4, 0.6], "values": [0.1, 0.9]},
        {"kind": "isotonic", "scores": [0.4, 0.6], "values": [0.1, 0.8]},
    ]
    assert len({scorer_id(calibration) for calibration in calibrations}) == len(calibrations)
    # in whichever order a file has its entries
    assert scorer_id({"bias": 0.5, "temperature": 2.0, "kind": "temperature"}) == scorer_id(calibrations[2])


class RunsCode:
    """Unpickling it makes a directory."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("place", ["beside", "in_metadata", "in_calibration", "alone"])
def test_malicious_pickle_is_refused_and_not_run(path: Path, tmp_path: Path, place: str) -> None:
    trap = tmp_path / "trap"
    attack = RunsCode(trap)
    content: dict[str, Any] = {
        "beside": {**step_weights(4), "extra": attack},
        "in_metadata": {"model_state_dict": step_weights(4), "thoughtbeam": {"card": attack}},
        "in_calibration": {
            "model_state_dict": sequence_weights(4, width=8, heads=1),
            "thoughtbeam": {**dataclasses.asdict(Metadata("sequence", 4)), "calibration": attack},
        },
        "alone": attack,
    }
    saved(path, content[place])

    with pytest.raises(ScorerFileError, match=r"scorer\.pt: refused, .* could run code"):
        load_scorer(path)

    assert not trap.exists()
    torch.load(path, weights_only=False)  # the trap is real: a loader that is not careful falls into it
    assert trap.exists()


def test_malicious_bare_pickle_is_refused_and_not_run(path: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    path.write_bytes(pickle.dumps(RunsCode(trap), protocol=2))

    with pytest.raises(ScorerFileError, match=r"scorer\.pt"):
        load_scorer(path)

    assert not trap.exists()


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut", b"\x80\x02"])
def test_file_that_is_no_scorer_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(ScorerFileError, match=r"scorer\.pt: (not a readable|refused)"):
        load_scorer(path)


def test_file_cut_short_is_refused(path: Path) -> None:
    saved(path, step_weights(16))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ScorerFileError, match="not a readable"):
        load_scorer(path)


def test_missing_file_and_directory_are_named(path: Path) -> None:
    with pytest.raises(ScorerFileError, match=r"scorer\.pt: no such file"):
        load_scorer(path)
    path.mkdir()
    with pytest.raises(ScorerFileError, match="not a readable"):
        load_scorer(path)


def without(name: str) -> dict[str, Any]:
    weights = step_weights(16)
    del weights[name]
    return weights


@pytest.mark.parametrize("name", ["net.0.weight", "net.0.bias", "net.2.weight", "net.2.bias"])
def test_missing_tensor_is_named(path: Path, name: str) -> None:
    with pytest.raises(ScorerFileError, match=rf"{name} \[.*\] is missing"):
        load(path, without(name))


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("net.0.weight", torch.zeros(512), r"net\.0\.weight has shape \[512\]; it must be \[H, D\]"),
        ("net.0.weight", torch.zeros(512, 0), r"net\.0\.weight has shape \[512, 0\]"),
        ("net.0.bias", torch.zeros(511), r"net\.0\.bias has shape \[511\]; .* must be \[512\]"),
        ("net.2.weight", torch.zeros(2, 512), r"net\.2\.weight has shape \[2, 512\]; .* must be \[1, 512\]"),
        ("net.2.bias", torch.zeros(()), r"net\.2\.bias has shape \[\]; .* must be \[1\]"),
        ("net.2.bias", torch.tensor([float("nan")]), r"net\.2\.bias holds values that are not finite"),
        ("net.0.bias", torch.zeros(512, dtype=torch.int64), r"net\.0\.bias is torch\.int64"),
    ],
)
def test_tensor_that_does_not_fit_is_named(path: Path, name: str, tensor: torch.Tensor, message: str) -> None:
    with pytest.raises(ScorerFileError, match=message):
        load(path, {**step_weights(16), name: tensor})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, r"thoughtbeam\.format is 2; this release reads 1"),
        ({"format": None}, r"thoughtbeam\.format is None"),
        ({"kind": "oracle"}, r"kind 'oracle' is not known; known: mlp, sequence"),
        ({"hidden_size": 32}, "hidden_size is 32 in its metadata and 16 in its weights"),
        ({"hidden_size": "16"}, r"thoughtbeam\.hidden_size is '16'; it must be a whole number"),
        ({"boundary_rule": None}, r"thoughtbeam\.boundary_rule is None; it must be a string"),
        ({"card": []}, r"thoughtbeam\.card is \[\]"),
        ({"kind": "sequence"}, r"w_in\.weight \[width, D\] and heads \[\] must be there"),
        ({"calibration": []}, r"thoughtbeam\.calibration is \[\]; it must be a dictionary"),
        ({"calibration": {"kind": "magic"}}, r"thoughtbeam\.calibration: kind is 'magic'"),
    ],
)
def test_broken_metadata_are_refused(path: Path, change: dict[str, Any], message: str) -> None:
    entry = {
        "format": 1,
        "kind": "mlp",
        "hidden_size": 16,
        "model_fingerprint": "f",
        "boundary_rule": "r",
        "card": {},
    }
    with pytest.raises(ScorerFileError, match=message):
        load(path, {"model_state_dict": step_weights(16), "thoughtbeam": {**entry, **change}})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1, 2], "holds a list"),
        ({"model_state_dict": 3}, "model_state_dict is a int"),
        ({"model_state_dict": step_weights(4), "thoughtbeam": 1}, "thoughtbeam is a int"),
        ({}, r"net\.0\.weight \[H, D\] is missing \(found: no tensor\)"),
    ],
)
def test_content_of_another_form_is_refused(path: Path, content: object, message: str) -> None:
    with pytest.raises(ScorerFileError, match=message):
        load(path, content)
