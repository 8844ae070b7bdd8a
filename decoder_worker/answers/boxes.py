"""Finds `\\boxed{…}` in a text, with nested braces."""

from __future__ import annotations

import re
from typing import NamedTuple

_MARK = re.compile(
    r"(?P<box>\\(?:boxed|fbox)\s*\{)|(?P<escaped>\\.)|(?P<open>\{)|(?P<close>\})|(?P<blank>\n\s*\n)",
    re.DOTALL,
)


class Box(NamedTuple):
    """A complete box: text[start:end] is all of it, content what is in its braces."""

    start: int
    end: int
    content: str


def boxes(text: str) -> list[Box]:
    """All complete boxes by their start; one inside another comes after it.

    A box that is not closed before a blank line is not complete: no formula goes on across one.
    """
    found = []
    opened: list[tuple[int, int] | None] = []  # of each open brace: start of its box and of its content
    for mark in _MARK.finditer(text):
        match mark.lastgroup:
            case "box":
                opened.append((mark.start(), mark.end()))
            case "open":
                opened.append(None)
            case "close" if opened:
                if (box := opened.pop()) is not None:
                    found.append(Box(box[0], mark.end(), text[box[1] : mark.start()]))
            case "blank":
                opened.clear()
    return sorted(found)
