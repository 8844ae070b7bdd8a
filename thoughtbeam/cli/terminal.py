"""How things are put on a terminal, or into a pipe."""

from __future__ import annotations

import os
import sys

from rich.console import Console

# a pipe has no width: wide enough for a node of a tree on one line
_PIPE_WIDTH = 160


def output() -> Console:
    """stdout."""
    return Console(highlight=False, width=_width(sys.stdout.isatty()))


def messages() -> Console:
    """stderr."""
    return Console(stderr=True, highlight=False, width=_width(sys.stderr.isatty()))


def printable(text: str) -> str:
    """Text from elsewhere without what could steer the terminal; line ends stay."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str, width: int) -> str:
    """The beginning of a text, on one line of at most `width` characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


def _width(terminal: bool) -> int | None:
    return None if terminal or "COLUMNS" in os.environ else _PIPE_WIDTH
