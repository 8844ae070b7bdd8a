"""Writes a data set for scorers so that it can be interrupted at any moment and gone on with."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from thoughtbeam.runtime.scorer_dataset import (
    MANIFEST,
    ROW_TYPES,
    DatasetError,
    Manifest,
    Origin,
    QuestionRecord,
    Shard,
)
from thoughtbeam.runtime.scorer_dataset_reader import read_manifest

_LOCK = ".lock"


class DatasetWriter:
    """The one writer of a directory, as a context manager; `flush` stores what was added, as does the end.

    A directory that has a data set of the same origin is gone on with. Raises DatasetError for one of another
    origin, and while somebody else writes there; OSError.
    """

    def __init__(self, directory: Path, origin: Origin) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._lock = _lock(directory)
        try:
            self._manifest = _begin(directory, origin)
        except BaseException:
            self._lock.close()
            raise
        self._waiting: list[QuestionRecord] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            self._lock.close()

    @property
    def manifest(self) -> Manifest:
        """What is stored."""
        return self._manifest

    @property
    def waiting(self) -> int:
        """Questions that are not stored yet."""
        return len(self._waiting)

    def add(self, question: QuestionRecord) -> None:
        """Takes a question. Raises DatasetError when its rows are of another type than those before."""
        dtype = next((other.dtype for other in self._waiting if other.dtype), self._manifest.dtype)
        if question.dtype and dtype and question.dtype != dtype:
            raise DatasetError(f"dtype: is {question.dtype}; must be {dtype}, as in the data set so far")
        self._waiting.append(question)

    def fail(self, key: str, message: str) -> None:
        """Notes why a question could not be done; it is tried again when the data set is gone on with."""
        self._manifest = replace(self._manifest, failed={**self._manifest.failed, key: message})

    def flush(self) -> None:
        """Stores what was added and what failed."""
        manifest = self._manifest
        if self._waiting:
            dtype = next((question.dtype for question in self._waiting if question.dtype), manifest.dtype)
            shard = self._write_shard(dtype or "float32")
            done = {question.key for question in self._waiting}
            manifest = replace(
                manifest,
                dtype=dtype,
                shards=[*manifest.shards, shard],
                failed={key: text for key, text in manifest.failed.items() if key not in done},
            )
        _write_manifest(self._directory, manifest)
        self._manifest, self._waiting = manifest, []

    def _write_shard(self, dtype: str) -> Shard:
        name = f"shard-{len(self._manifest.shards):05d}.npz"
        arrays = _arrays(self._waiting, dtype, self._manifest.origin.hidden_size)
        _write_whole(self._directory / name, lambda stream: np.savez(stream, **arrays))
        return Shard(
            file=name,
            questions={question.key: question.name for question in self._waiting},
            traces=len(arrays["number"]),
            thoughts=len(arrays["positions"]),
            right=int(arrays["right"].sum()),
        )


def _arrays(questions: list[QuestionRecord], dtype: str, hidden_size: int) -> Mapping[str, Any]:
    traces = [(index, trace) for index, question in enumerate(questions) for trace in question.traces]
    thoughts = [len(trace.positions) for _, trace in traces]
    rows = np.frombuffer(b"".join(trace.rows for _, trace in traces), dtype=ROW_TYPES[dtype])

    def column(name: str, kind: str) -> Any:
        return np.array([getattr(trace, name) for _, trace in traces], dtype=kind)

    def joined(name: str, kind: str) -> Any:
        return np.array([value for _, trace in traces for value in getattr(trace, name)], dtype=kind)

    return {
        "keys": np.array([question.key for question in questions], dtype=str),
        "question": np.array([index for index, _ in traces], dtype="<i4"),
        **{name: column(name, "<i4") for name in ("number", "parent", "fork_thought")},
        **{name: column(name, "<i4") for name in ("prompt_tokens", "tokens")},
        **{name: column(name, "U") for name in ("finish", "answer")},
        "right": column("right", "|b1"),
        "offsets": np.concatenate([[0], np.cumsum(thoughts)]).astype("<i8"),
        "rows": rows.reshape(sum(thoughts), hidden_size),
        "positions": joined("positions", "<i4"),
        "confidences": joined("confidences", "<f4"),
    }


def _lock(directory: Path) -> IO[bytes]:
    lock = (directory / _LOCK).open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DatasetError(f"{directory}: another process is writing this data set") from None
    return lock


def _begin(directory: Path, origin: Origin) -> Manifest:
    if not (directory / MANIFEST).exists():
        manifest = Manifest(origin)
        _write_manifest(directory, manifest)
        return manifest
    manifest = read_manifest(directory)
    for name in Origin.__dataclass_fields__:
        there, now = getattr(manifest.origin, name), getattr(origin, name)
        if there != now:
            raise DatasetError(
                f"{name}: is {now!r}; must be {there!r}, as in {directory}, or --out another directory"
            )
    return manifest


def _write_manifest(directory: Path, manifest: Manifest) -> None:
    text = json.dumps(manifest.as_json(), indent=1) + "\n"
    _write_whole(directory / MANIFEST, lambda stream: stream.write(text.encode()))


def _write_whole(path: Path, write: Any) -> None:
    """A file that is there as a whole or not at all, also after a loss of power."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as stream:
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
