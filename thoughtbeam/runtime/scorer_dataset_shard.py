"""Reads one file of a data set for scorers, and makes sure that its arrays fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from thoughtbeam.runtime.scorer_dataset import ARRAYS, ROOT, ROW_TYPES, DatasetError, Shard

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]


def read_shard(path: Path, listed: Shard, dtype: str, hidden_size: int) -> Arrays:
    """The arrays of a shard, as in ARRAYS. listed: as the manifest has it.

    Raises DatasetError naming the file and the array where the file is damaged, or where an array does not
    fit the others, the manifest, or rows of this dtype and size: whoever reads on need not look again.
    """
    shard = _load(path)
    if not listed.thoughts:  # written when nobody knew the type of later rows
        shard["rows"] = shard["rows"].astype(ROW_TYPES[dtype])
    try:
        _check_forms(shard, listed, dtype, hidden_size)
        _check_values(shard)
    except DatasetError as error:
        raise DatasetError(f"{path}: {error}") from None
    return shard


def _load(path: Path) -> Arrays:
    try:
        # opened here, as numpy leaves a damaged file open
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as content:
            found = {name: content[name] for name in ARRAYS if name in content.files}
    except Exception as error:  # zipfile, zlib and numpy each have their own for what is damaged
        text = " ".join(str(error).split())
        raise DatasetError(f"{path}: cannot be read: {text or type(error).__name__}") from None
    if missing := [name for name in ARRAYS if name not in found]:
        raise DatasetError(f"{path}: {missing[0]}: is missing; must be {ARRAYS[missing[0]][1]}")
    return found


def _check_forms(shard: Arrays, listed: Shard, dtype: str, hidden_size: int) -> None:
    own = {
        "keys": (shard["keys"].size,),
        "offsets": (listed.traces + 1,),
        "rows": (listed.thoughts, hidden_size),
        "positions": (listed.thoughts,),
        "confidences": (listed.thoughts,),
    }
    for name, (kind, _) in ARRAYS.items():
        found, shape = shard[name], own.get(name, (listed.traces,))
        if found.shape != shape:
            raise DatasetError(f"{name}: has shape {found.shape}; must have {shape}")
        wanted = np.dtype(ROW_TYPES[dtype] if name == "rows" else kind)
        if found.dtype != wanted and not found.dtype.kind == wanted.kind == "U":  # texts of any length
            raise DatasetError(f"{name}: has type {found.dtype}; must have {wanted}")


def _check_values(shard: Arrays) -> None:
    offsets, thoughts = shard["offsets"], len(shard["positions"])
    if offsets[0] != 0 or offsets[-1] != thoughts or (np.diff(offsets) < 0).any():
        raise DatasetError(f"offsets: must rise from 0 to {thoughts}")
    questions = len(shard["keys"])
    names = ("question", "number", "parent", "fork_thought")
    columns = (shard[name].tolist() for name in names)
    lengths: dict[tuple[int, int], int] = {}  # thoughts, inherited ones too
    for question, number, parent, fork, own in zip(*columns, np.diff(offsets).tolist(), strict=True):
        if not 0 <= question < questions:
            raise DatasetError(f"question: is {question}; must be from 0 to {questions - 1}")
        if (question, number) in lengths:
            raise DatasetError(f"number: is {number} twice; must differ within a question")
        if parent != ROOT and (question, parent) not in lengths:
            raise DatasetError(f"parent: is {parent}; must be {ROOT} or the number of an earlier trace")
        most = lengths[question, parent] if parent != ROOT else 0
        if not 0 <= fork <= most:
            raise DatasetError(f"fork_thought: is {fork}; must be from 0 to {most}")
        lengths[question, number] = fork + own
