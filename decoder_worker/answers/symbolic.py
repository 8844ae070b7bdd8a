"""Equality of mathematical expressions with math-verify: what runs in the comparison processes.

math-verify and sympy are imported where they are called, so that the module costs the decoder worker nothing;
and nothing else is imported, so that a comparison process starts quickly and stays small.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterable
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

_DECIMAL = re.compile(r"([\^_]\s*)?(\d*)\.(\d+)")
_DIGITS = 120  # that values are worked out to
_COMPARED_DIGITS = 100
_NEGLIGIBLE = 1e-110  # of a number's real part to its imaginary one, or the other way round


def warm_up() -> None:
    """Loads math-verify and makes its parser quick."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    for text in _WARM_UP:
        fingerprint(text)


def fingerprint(text: str) -> str | None:
    """None: a normalised answer that is no expression. Else what equal expressions have in common.

    That is the expression's value, each variable standing for a number of its own; "" where nothing is known
    (equations, unions, …), which may equal anything. May run for ever and take any amount of memory: so may
    comparisons with the answer, one of which is tried here when nothing is known.
    """
    expression = _parsed(text)
    if expression is None:
        return None
    try:
        value = _value(expression)
    except Exception:  # whatever sympy has not thought of
        value = ""
    if not value:
        equal(text, "1")
    return value


def equal(left: str, right: str) -> bool:
    """Whether two normalised answers are the same mathematically, seen from either side.

    False when one of them cannot be read. May run for ever and take any amount of memory.
    """
    a, b = _parsed(left), _parsed(right)
    if a is None or b is None or _list_against_pair(a, b) or _list_against_pair(b, a):
        return False
    return _verified(a, b) or _verified(b, a)


def _verified(gold: Any, target: Any) -> bool:
    """math-verify's comparison, which is not symmetric; it turns exceptions into False."""
    from math_verify import verify

    return bool(verify(gold, target, numeric_precision=_DIGITS, timeout_seconds=None))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """The expression as sympy has it; None when it cannot be read.

    By math-verify's parser without its search for an answer: that one settles for a part of what it cannot
    read, and takes R for r. Decimals become fractions, so that nothing is rounded and 0.333 is not 1/3.
    """
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from latex2sympy2_extended.latex2sympy2 import ConversionConfig
    from math_verify.grader import should_treat_as_complex

    try:
        latex = normalize_latex(
            _DECIMAL.sub(_fraction, text),
            NormalizationConfig(
                basic_latex=True,
                units=False,
                malformed_operators=True,
                nits=True,
                boxed="none",
                equations=False,
            ),
        )
        return _canonical(
            latex2sympy(
                latex,
                is_real=not should_treat_as_complex(latex),
                normalization_config=None,
                conversion_config=ConversionConfig(lowercase_symbols=False),
            )
        )
    except Exception:  # a parser of others: of every kind
        return None


def _fraction(decimal: re.Match[str]) -> str:
    script, whole, part = decimal.groups()
    fraction = rf"\frac{{{int(whole + part)}}}{{{10 ** len(part)}}}"
    return f"{script}{{{fraction}}}" if script else fraction


def _canonical(expression: Any) -> Any:
    """i is the imaginary unit. x = 1, x = 2 are the numbers 1, 2; x = 1, y = 2 is the pair (1, 2); x < 1,
    x > 2 is a union of intervals, its comma an "or"."""
    from latex2sympy2_extended.sets import FiniteSet
    from sympy import And, Eq, Ge, Gt, I, Le, Lt, Tuple, Union

    for symbol in getattr(expression, "free_symbols", ()):
        if symbol.name == "i":
            expression = expression.subs(symbol, I)
    if not isinstance(expression, FiniteSet):
        return expression
    if len(expression.free_symbols) == 1 and all(isinstance(e, Ge | Gt | Le | Lt | And) for e in expression):
        return Union(*(e.as_set() for e in expression))
    if all(isinstance(e, Eq) and e.lhs.is_Symbol for e in expression):
        values = {e.lhs.name: e.rhs for e in expression}
        if len({name.partition("_")[0] for name in values}) == 1:
            return FiniteSet(*(e.rhs for e in expression))
        return Tuple(*(values[name] for name in sorted(values)))
    return expression


def _list_against_pair(left: Any, right: Any) -> bool:
    """1, 2 is 2, 1, so it can't be (1, 2)."""
    from sympy import FiniteSet, Interval, Tuple

    return isinstance(left, FiniteSet) and isinstance(right, Tuple | Interval)


def _value(expression: Any) -> str:
    """Of a number or a term, of a set, tuple or matrix of these; "" for anything else."""
    from sympy import FiniteSet, Interval, MatrixBase, Tuple

    match expression:
        case FiniteSet():
            values = sorted({_value(element) for element in expression})
            # a number is the set of itself
            return values[0] if len(values) == 1 else _values("set", values)
        case Tuple():
            return _values("tuple", map(_value, expression.args))
        case Interval() if expression.left_open and expression.right_open:  # also a pair
            return _values("tuple", map(_value, expression.args[:2]))
        case MatrixBase():
            return _values(f"matrix {expression.shape}", map(_value, expression.flat()))
    return _value_of_term(expression)


def _values(kind: str, values: Iterable[str]) -> str:
    known = list(values)
    return "" if "" in known else f"{kind}: {'; '.join(known)}"


def _value_of_term(expression: Any) -> str:
    from sympy import Derivative, Expr, Float, Limit, Rational
    from sympy.concrete.expr_with_limits import ExprWithLimits
    from sympy.core.function import AppliedUndef

    if not isinstance(expression, Expr) or expression.has(Derivative, Limit, ExprWithLimits, AppliedUndef):
        return ""
    numbers = {s: 1 + Rational(zlib.crc32(s.name.encode()), 2**32) for s in expression.free_symbols}
    value = expression.evalf(_DIGITS, subs=numbers, strict=True)
    if not value.is_finite:
        return ""
    parts = [Float(part, _DIGITS) for part in value.as_real_imag()]
    largest = max(abs(part) for part in parts)
    kept = [part if abs(part) > _NEGLIGIBLE * largest else Float(0) for part in parts]
    return " ".join(str(Float(part, _COMPARED_DIGITS)) for part in kept)
