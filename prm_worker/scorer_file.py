"""Scorer files: `.pt` files that hold tensors and plain values only, so that loading one runs no code.

Two kinds are read. The public STEP checkpoints: the weights bare, or under `model_state_dict` beside whatever
else the training kept. Our own: the same layout, plus an entry `thoughtbeam` that says what the scorer was
trained for.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from prm_worker.scorers.base import Scorer
from prm_worker.scorers.calibration import check_calibration
from prm_worker.scorers.incremental import DEFAULT_CACHE_BYTES, DEFAULT_CACHE_DTYPE, SequenceScorer
from prm_worker.scorers.mlp import LAYOUT, MlpScorer

FORMAT = 1
_WEIGHTS = "model_state_dict"
_METADATA = "thoughtbeam"
_KINDS = (MlpScorer.kind, SequenceScorer.kind)
_METADATA_TYPES: Mapping[str, tuple[type, str]] = {
    "kind": (str, "string"),
    "hidden_size": (int, "whole number"),
    "model_fingerprint": (str, "string"),
    "boundary_rule": (str, "string"),
    "card": (dict, "dictionary"),
}


class ScorerFileError(ValueError):
    """A scorer file that cannot be used; the message names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a scorer was trained for.

    kind: which scorer it is. hidden_size: width of the rows. model_fingerprint: of the model that made the
    training rows; boundary_rule: which positions they were taken at; empty: not recorded. card: plain values
    for people (data, figures). calibration: from its logits to its scores, see `scorers/calibration.py`.
    """

    kind: str
    hidden_size: int
    model_fingerprint: str = ""
    boundary_rule: str = ""
    card: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScorerFile:
    """A scorer as it is stored. A file without metadata is an `mlp` whose origin is not recorded."""

    weights: Mapping[str, Tensor]
    metadata: Metadata


def write_scorer_file(path: Path, scorer: ScorerFile) -> None:
    """Writes our own container, and the folders above it; a file of that name is replaced in one step. Raises
    ValueError for a calibration that cannot be used, OSError naming a file that cannot be written."""
    check_calibration(scorer.metadata.calibration)
    entry = {"format": FORMAT, **asdict(scorer.metadata)}
    content = io.BytesIO()  # of a file that it cannot write, torch raises RuntimeError
    torch.save({_WEIGHTS: dict(scorer.weights), _METADATA: entry}, content)
    with _part_of(path) as part:
        part.write_bytes(content.getbuffer())
        os.replace(part, path)


def check_writable(path: Path) -> None:
    """Raises OSError where write_scorer_file would: so that it is known before a training, not after it."""
    with _part_of(path) as part:
        part.touch()


@contextmanager
def _part_of(path: Path) -> Iterator[Path]:
    """Where to write what then takes the place of `path`; nothing is left there."""
    part = path.with_name(path.name + ".part")
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield part
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise OSError(f"{path}: cannot be written: {error}") from None


def read_scorer_file(path: Path) -> ScorerFile:
    """Reads a scorer file of either kind onto the CPU.

    Raises ScorerFileError when it is missing, is no such file, holds something other than tensors and plain
    values, or when its metadata are broken or of a newer format.
    """
    content = _load(path)
    weights = content.get(_WEIGHTS, content)
    if not isinstance(weights, Mapping):
        raise ScorerFileError(
            f"{path}: {_WEIGHTS} is a {type(weights).__name__}; it must map names to tensors"
        )
    weights = {str(k): v for k, v in weights.items() if isinstance(v, Tensor)}
    if _METADATA in content:
        metadata = _read_metadata(path, content[_METADATA])
    else:
        metadata = Metadata(kind=MlpScorer.kind, hidden_size=_hidden_size(weights))
    return ScorerFile(weights, metadata)


def load_scorer(
    path: Path,
    device: str = "cpu",
    *,
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    cache_dtype: str = DEFAULT_CACHE_DTYPE,
) -> tuple[Scorer, Metadata]:
    """The scorer of a file, ready to score on `device`, and what it was trained for. cache_bytes,
    cache_dtype: for one that keeps histories, see SequenceScorer.

    Raises ScorerFileError, also when the weights do not fit the scorer's layout or the metadata.
    """
    stored = read_scorer_file(path)
    kind, calibration = stored.metadata.kind, stored.metadata.calibration
    if kind not in _KINDS:
        raise ScorerFileError(f"{path}: kind {kind!r} is not known; known: {', '.join(_KINDS)}")
    scorer: Scorer
    try:
        if kind == MlpScorer.kind:
            scorer = MlpScorer(stored.weights, device, calibration)
        else:
            scorer = SequenceScorer(stored.weights, device, calibration, cache_bytes, cache_dtype)
    except ValueError as error:
        raise ScorerFileError(f"{path}: {error}") from error
    if scorer.hidden_size != stored.metadata.hidden_size:
        raise ScorerFileError(
            f"{path}: hidden_size is {stored.metadata.hidden_size} in its metadata and {scorer.hidden_size} "
            "in its weights"
        )
    return scorer, stored.metadata


def _load(path: Path) -> Mapping[Any, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ScorerFileError(f"{path}: no such file") from None
    except pickle.UnpicklingError as error:
        raise ScorerFileError(
            f"{path}: refused, it holds something other than tensors and plain values, which could run code "
            f"when loaded ({_first_line(error)})"
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        # torch has no exception of its own for a file that is cut or is no such file at all
        raise ScorerFileError(f"{path}: not a readable .pt file ({_first_line(error)})") from error
    if not isinstance(content, Mapping):
        raise ScorerFileError(f"{path}: holds a {type(content).__name__}; it must map names to tensors")
    return content


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _hidden_size(weights: Mapping[str, Tensor]) -> int:
    first = weights.get(next(iter(LAYOUT)))
    return first.shape[-1] if first is not None and first.dim() else 0


def _read_metadata(path: Path, entry: object) -> Metadata:
    if not isinstance(entry, Mapping):
        raise ScorerFileError(f"{path}: {_METADATA} is a {type(entry).__name__}; it must be a dictionary")
    version = entry.get("format")
    if version != FORMAT:
        raise ScorerFileError(f"{path}: {_METADATA}.format is {version!r}; this release reads {FORMAT}")
    for name, (expected, described) in _METADATA_TYPES.items():
        if not isinstance(entry.get(name), expected):
            raise ScorerFileError(
                f"{path}: {_METADATA}.{name} is {entry.get(name)!r}; it must be a {described}"
            )
    calibration = entry.get("calibration", {})  # files of before had none
    if not isinstance(calibration, Mapping):
        raise ScorerFileError(f"{path}: {_METADATA}.calibration is {calibration!r}; it must be a dictionary")
    try:
        check_calibration(calibration)
    except ValueError as error:
        raise ScorerFileError(f"{path}: {_METADATA}.calibration: {error}") from None
    return Metadata(**{name: entry[name] for name in _METADATA_TYPES}, calibration=calibration)
