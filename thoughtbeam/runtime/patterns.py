"""Patterns that clients send: checked by whoever is to run them, in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from thoughtbeam.runtime.status import Violation


def pattern_violations(field: str, pattern: str) -> Iterator[Violation]:
    """None, or one: what Python's re has against it."""
    try:
        re.compile(pattern)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        yield Violation(field, f"must be a regular expression of Python's re: {error}")
