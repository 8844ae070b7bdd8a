"""What pip may install beside vLLM in vLLM's own image: `python3 constraints.py IMAGE LOCK`, to stdout.

IMAGE: the image's packages, as `pip list --format=freeze` prints them. They are constraints as they are, so
that pip keeps each of them. LOCK: our pins, for what the image lacks. The other packages of gRPC must go with
the grpcio of the image; where it has one, pip chooses them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Canonical names and versions of all lines `NAME==VERSION`, whatever follows them."""
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in _PIN.findall(text)}


def constraints(image: str, lock: str) -> Iterable[str]:
    """The lines, sorted by name."""
    have = pins(image)
    follow_grpcio = {name for name in pins(lock) if name.startswith("grpcio-")} if "grpcio" in have else set()
    missing = {name: version for name, version in pins(lock).items() if name not in follow_grpcio}
    return (f"{name}=={version}" for name, version in sorted({**missing, **have}.items()))


if __name__ == "__main__":
    print("\n".join(constraints(*(Path(name).read_text() for name in sys.argv[1:3]))))
