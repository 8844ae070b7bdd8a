"""What tells the weights of one model from those of another, without reading all of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

_EDGE_BYTES = 1 << 20


def add_weight_files(digest: _Hash, files: Iterable[Path]) -> None:
    """Adds name, size, first and last MiB of every file to a digest: a second of reading, also for 100 GB."""
    for file in files:
        size = file.stat().st_size
        digest.update(f"\0{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_EDGE_BYTES))
            stream.seek(max(0, size - _EDGE_BYTES))
            digest.update(stream.read(_EDGE_BYTES))
