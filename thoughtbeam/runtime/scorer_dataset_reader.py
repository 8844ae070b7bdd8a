"""Reads data sets for scorers, one or several of the same model, into arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from thoughtbeam.runtime.scorer_dataset import (
    FORMAT,
    MANIFEST,
    ROOT,
    ROW_TYPES,
    DatasetError,
    Manifest,
    Origin,
    Shard,
)
from thoughtbeam.runtime.scorer_dataset_shard import Arrays, read_shard

Array: TypeAlias = npt.NDArray[Any]

_ROWS_AT_ONCE = 1024

# What rows must have in common to be read together; how many traces a question has may differ.
_SHARED = ("fingerprint", "boundary_rule", "hidden_size")
_TEXTS = ("model", "fingerprint", "engine_version", "boundary_rule", "answer_mode", "answer_regex")
_ORIGIN_TYPES: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(_TEXTS, (str, "text")),
    **dict.fromkeys(("hidden_size", "traces", "siblings"), (int, "whole number")),
    "sampling": (dict, "dictionary"),
}
_SHARD_TYPES: Mapping[str, tuple[type, str]] = {
    "file": (str, "text"),
    "questions": (dict, "dictionary"),
    **dict.fromkeys(("traces", "thoughts", "right"), (int, "whole number")),
}


@dataclass(frozen=True, slots=True, eq=False)
class Traces:
    """Traces of any number of questions, in columns.

    rows: [N, D] as stored, see `values`. dtype: of the rows. positions, confidences: [N]. paths: for each
    trace the indices of all its thoughts' rows, inherited ones first; those that are not finite are left out,
    as no scorer ever sees them. questions: keys. question: index into questions. parent: index of the
    parent's trace, -1 for a root. inherited: tokens after the prompt that a branch has from its parent. The
    rest as in the file format, one value per trace.
    """

    origin: Origin
    dtype: str
    questions: Sequence[str]
    rows: Array
    positions: Array
    confidences: Array
    paths: Sequence[Array]
    question: Array
    parent: Array
    fork_thought: Array
    inherited: Array
    prompt_tokens: Array
    tokens: Array
    right: Array

    def __len__(self) -> int:
        return len(self.paths)

    def values(self, indices: Array) -> npt.NDArray[np.float32]:
        """These rows as float32 [len(indices), D]."""
        return _as_float32(self.rows[indices], self.dtype)

    def depths(self, trace: int) -> Array:
        """Tokens after the prompt at which each thought of a trace ends, its boundary token included."""
        depths: Array = self.positions[self.paths[trace]] + 1 - self.prompt_tokens[trace]
        return depths


def read_manifest(directory: Path) -> Manifest:
    """Raises DatasetError when there is none, or one that is broken or of a newer format."""
    path = directory / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(f"{directory}: is no data set, it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        found = content.get("format") if isinstance(content, dict) else content
        raise DatasetError(f"{path}: format: is {found!r}; must be {FORMAT} for this release")
    try:
        origin = content["origin"]
        _check_types(f"{path}: origin", origin, _ORIGIN_TYPES)
        for number, shard in enumerate(content["shards"]):
            _check_types(f"{path}: shards[{number}]", shard, _SHARD_TYPES)
        if content["dtype"] not in ("", *ROW_TYPES):
            raise DatasetError(
                f"{path}: dtype: is {content['dtype']!r}; must be one of {', '.join(ROW_TYPES)}"
            )
        return Manifest(
            Origin(**origin),
            content["dtype"],
            [Shard(**shard) for shard in content["shards"]],
            content["failed"],
        )
    except (KeyError, TypeError) as error:
        raise DatasetError(f"{path}: is not as a manifest must be: {error}") from None


def _check_types(where: str, entry: Mapping[str, Any], types: Mapping[str, tuple[type, str]]) -> None:
    for name, (kind, described) in types.items():
        if not isinstance(entry[name], kind):
            raise DatasetError(f"{where}.{name}: is {entry[name]!r}; must be a {described}")


def read_traces(directories: Sequence[Path]) -> Traces:
    """All traces of these data sets; a question that several have counts once, as the first has it.

    Raises DatasetError: for what is broken, data sets that do not belong together, and when there is no
    thought at all.
    """
    manifests = [read_manifest(directory) for directory in directories]
    first = manifests[0]
    for directory, other in zip(directories, manifests, strict=True):
        for name in _SHARED:
            wanted, found = getattr(first.origin, name), getattr(other.origin, name)
            if wanted != found:
                raise DatasetError(
                    f"{directory}: {name}: is {found!r}; must be {wanted!r}, as {directories[0]}"
                )
        if other.dtype and first.dtype and other.dtype != first.dtype:
            raise DatasetError(f"{directory}: dtype: is {other.dtype}; must be {first.dtype}")
    thoughts = sum(shard.thoughts for manifest in manifests for shard in manifest.shards)
    if not thoughts:
        raise DatasetError(f"{directories[0]}: is empty; there must be at least one trace with a thought")
    dtype = next(manifest.dtype for manifest in manifests if manifest.dtype)
    assembly = _Assembly(first.origin, dtype, thoughts)
    for directory, manifest in zip(directories, manifests, strict=True):
        for shard in manifest.shards:
            assembly.take(read_shard(directory / shard.file, shard, dtype, first.origin.hidden_size))
    return assembly.traces()


class _Assembly:
    """Puts shards together: what counts within a shard or a question becomes what counts in all.

    thoughts: of all shards. Rows may take half of the memory: they are never there twice.
    """

    def __init__(self, origin: Origin, dtype: str, thoughts: int) -> None:
        self._origin, self._dtype = origin, dtype
        self._rows = np.empty((thoughts, origin.hidden_size), ROW_TYPES[dtype])
        self._questions: list[str] = []
        self._columns: dict[str, list[Array]] = {}
        self._own: list[Array] = []
        self._parents: list[int] = []
        self._thoughts = 0

    def take(self, shard: Arrays) -> None:
        known = {key: index for index, key in enumerate(self._questions)}
        new = [key not in known for key in shard["keys"].tolist()]
        indices = np.cumsum([False, *new])[:-1] + len(self._questions)
        self._questions += [key for key, wanted in zip(shard["keys"].tolist(), new, strict=True) if wanted]
        places: dict[tuple[int, int], int] = {}
        taken = []
        for trace, question in enumerate(shard["question"].tolist()):
            if not new[question]:
                continue
            parent = int(shard["parent"][trace])
            places[question, int(shard["number"][trace])] = len(self._own)
            self._parents.append(places[question, parent] if parent != ROOT else ROOT)
            start, end = shard["offsets"][trace : trace + 2].tolist()
            self._own.append(np.arange(start, end) + self._thoughts)
            taken.append(trace)
        first, self._thoughts = self._thoughts, self._thoughts + len(shard["rows"])
        self._rows[first : self._thoughts] = shard["rows"]
        columns = {name: shard[name] for name in ("positions", "confidences")}
        columns |= {name: shard[name][taken] for name in ("fork_thought", "prompt_tokens", "tokens", "right")}
        columns["question"] = indices[shard["question"][taken]] if taken else np.empty(0, dtype=np.int64)
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(values)

    def traces(self) -> Traces:
        columns = {name: np.concatenate(values) for name, values in self._columns.items()}
        ends = columns["positions"] + 1
        finite = _finite(self._rows, self._dtype)
        whole: list[Array] = []
        inherited = np.zeros(len(self._own), dtype=np.int64)
        for trace, own in enumerate(self._own):
            parent, fork = self._parents[trace], columns["fork_thought"][trace]
            shared = whole[parent][:fork] if parent != ROOT else own[:0]
            if len(shared):
                inherited[trace] = ends[shared[-1]] - columns["prompt_tokens"][trace]
            whole.append(np.concatenate([shared, own]))
        return Traces(
            origin=self._origin,
            dtype=self._dtype,
            questions=self._questions,
            rows=self._rows,
            paths=[path[finite[path]] for path in whole],
            parent=np.array(self._parents),
            inherited=inherited,
            **columns,
        )


def _finite(rows: Array, dtype: str) -> npt.NDArray[np.bool_]:
    """Which rows are finite, [N]; in blocks, as float32 may take twice the room of all rows."""
    starts = range(0, len(rows), _ROWS_AT_ONCE)
    blocks = (_as_float32(rows[start : start + _ROWS_AT_ONCE], dtype) for start in starts)
    return np.concatenate([np.isfinite(block).all(axis=1) for block in blocks])


def _as_float32(rows: Array, dtype: str) -> npt.NDArray[np.float32]:
    if dtype == "bfloat16":  # the upper half of a float32
        widened: npt.NDArray[np.float32] = (rows.astype(np.uint32) << 16).view(np.float32)
        return widened
    with np.errstate(invalid="ignore"):  # some bits are numbers of no kind; they stay that
        return rows.astype(np.float32)
