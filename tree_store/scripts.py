"""Loads the Lua scripts and resolves their includes."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--#include (\S+)\n", re.MULTILINE)


@cache
def source(name: str) -> str:
    """Source of `lua/<name>.lua` with every `--#include <file>` line replaced by that file."""
    return _INCLUDE.sub(lambda found: _read(found[1]), _read(f"{name}.lua"))


def names() -> list[str]:
    """All scripts, one per transition."""
    entries = (files("tree_store") / "lua").iterdir()
    return sorted(entry.name.removesuffix(".lua") for entry in entries if entry.name.endswith(".lua"))


def _read(path: str) -> str:
    return (files("tree_store") / "lua" / path).read_text(encoding="utf-8")
