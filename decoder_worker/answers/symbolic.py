"""Equality of mathematical expressions with math-verify: what runs in the comparison processes.

math-verify is imported where it is called, so that the module costs the decoder worker nothing; and nothing
else is imported, so that a comparison process starts quickly and stays small.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

# Typical shapes: the first parse of each is a hundred times slower than the next ones.
_WARM_UP = (
    r"\frac{x^2}{2} + \sqrt{3}",
    r"(1, \frac{\pi}{2})",
    r"y = 2x - 1",
    r"\{1, 2\}",
    r"[0, 1) \cup (2, \infty)",
)

# Digits that a decimal is compared to. Equality is exact, so as to be transitive: 0.333 is not 1/3.
_ROUNDING = 12
_PRECISION = 60


def warm_up() -> None:
    """Loads math-verify and makes its parser quick."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    for text in _WARM_UP:
        readable(text)


def readable(text: str) -> bool:
    """Whether a normalised answer is an expression. May run for ever and take any amount of memory: so may
    every comparison with it, which is tried here."""
    equal(text, "1")
    return _parsed(text) is not None


def equal(left: str, right: str) -> bool:
    """Whether two normalised answers are the same mathematically, seen from either side.

    False when one of them cannot be read. May run for ever and take any amount of memory.
    """
    a, b = _parsed(left), _parsed(right)
    return a is not None and b is not None and (_verified(a, b) or _verified(b, a))


def _verified(gold: Any, target: Any) -> bool:
    """math-verify's comparison, which is not symmetric; it turns exceptions into False."""
    from math_verify import verify

    return bool(
        verify(gold, target, float_rounding=_ROUNDING, numeric_precision=_PRECISION, timeout_seconds=None)
    )


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """The expression as sympy has it; None when it cannot be read."""
    from math_verify import LatexExtractionConfig, parse

    found = parse(
        rf"\boxed{{{text}}}",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    return found[0] if found else None
