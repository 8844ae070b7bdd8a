"""Numbers as exact fractions: so that 1/2^98 is not 1/2^99, as in floating point, and 0.5 is 1/2."""

from __future__ import annotations

import re
from fractions import Fraction

MOST_CHARACTERS = 200
MOST_DEPTH = 20
MOST_BITS = 12_000  # of a power: what is larger is left to whoever can be killed

_THOUSANDS = r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d{0,2}(?:[ ]\d{3})+(?!\d)"
_TOKEN = re.compile(
    rf"""\s*(?:
        (?P<repeating>\d*\.\d*\\overline\{{\d+\}})
      | (?P<number>(?:{_THOUSANDS}|\d+)(?:\.\d*)?(?:[eE][+-]?\d{{1,3}})?|\.\d+)
      | (?P<operator>\\frac|\\cdot|\\times|\\div|[-+*/^(){{}}])
    )""",
    re.VERBOSE,
)
_MIXED = re.compile(r"(-?)\s*(\d+)\s*(?:\\frac\{(\d+)\}\{(\d+)\}|\s(\d+)\s*/\s*(\d+))")
_IN_BASE = re.compile(r"([0-9a-zA-Z]+)_\{?(\d{1,2})\}?")
_SYNONYMS = {"\\cdot": "*", "\\times": "*", "\\div": "/"}


class _NotExactError(Exception):
    """Not a plain number, or too large to be worked out here."""


def exact_number(text: str) -> Fraction | None:
    """The value of a normalised answer that is a number; None for anything else.

    Reads integers with thousands separators or in another base, decimals, repeating decimals, fractions,
    mixed numbers, scientific notation and arithmetic of these. Time and memory are bounded.
    """
    if len(text) > MOST_CHARACTERS:
        return None
    if mixed := _MIXED.fullmatch(text.strip()):
        sign, whole, *parts = mixed.groups()
        top, bottom = (int(part) for part in parts if part is not None)
        if not top < bottom:
            return None
        return (int(whole) + Fraction(top, bottom)) * (-1 if sign else 1)
    if based := _IN_BASE.fullmatch(text.strip()):
        return _of_base(*based.groups())
    try:
        reader = _Reader(_tokens(text))
        value = reader.sum(0)
        return value if reader.at_end else None
    except (_NotExactError, ZeroDivisionError):
        return None


def bits(number: Fraction) -> int:
    """The length of its numerator or its denominator, whichever is longer."""
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _of_base(digits: str, base: str) -> Fraction | None:
    if not (digits[0].isdigit() and 2 <= int(base) <= 36):
        return None
    try:
        return Fraction(int(digits, int(base)))
    except ValueError:
        return None


def _tokens(text: str) -> list[Fraction | str]:
    """Numbers and operators, the latter with one spelling each."""
    tokens: list[Fraction | str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _NotExactError
        if match["operator"]:
            tokens.append(_SYNONYMS.get(match["operator"], match["operator"]))
        elif match["number"]:
            tokens.append(Fraction(match["number"].replace(",", "").replace(" ", "")))
        else:
            tokens.append(_repeating(match["repeating"]))
        position = match.end()
    return tokens


def _repeating(token: str) -> Fraction:
    r"""The value of `0.1\overline{6}`."""
    whole, _, rest = token.partition(".")
    once, _, again = rest.removesuffix("}").partition("\\overline{")
    period = Fraction(int(again), 10 ** len(again) - 1)
    return int(whole or "0") + (int(once or "0") + period) / Fraction(10) ** len(once)


class _Reader:
    """Recursive descent: sum > product > sign > power > atom."""

    def __init__(self, tokens: list[Fraction | str]) -> None:
        self._tokens = tokens
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def _take(self, *wanted: str) -> str | None:
        """The next token, if it is one of these."""
        token = None if self.at_end else self._tokens[self._next]
        if not isinstance(token, str) or token not in wanted:
            return None
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take(token) is None:
            raise _NotExactError

    def sum(self, depth: int) -> Fraction:
        if depth > MOST_DEPTH:
            raise _NotExactError
        value = self._product(depth)
        while operator := self._take("+", "-"):
            term = self._product(depth)
            value = value + term if operator == "+" else value - term
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._signed(depth)
        while operator := self._take("*", "/"):
            factor = self._signed(depth)
            value = value * factor if operator == "*" else value / factor
        return value

    def _signed(self, depth: int) -> Fraction:
        sign = 1
        while operator := self._take("+", "-"):
            sign = -sign if operator == "-" else sign
        return sign * self._power(depth)

    def _power(self, depth: int) -> Fraction:
        base = self._atom(depth)
        if self._take("^") is None:
            return base
        exponent = self._signed(depth + 1)
        if exponent.denominator != 1 or abs(exponent) * bits(base) > MOST_BITS or base == exponent == 0:
            raise _NotExactError
        return Fraction(base ** int(exponent))

    def _atom(self, depth: int) -> Fraction:
        for opening, closing in ("(", ")"), ("{", "}"):
            if self._take(opening):
                value = self.sum(depth + 1)
                self._expect(closing)
                return value
        if self._take("\\frac"):
            top, bottom = self._braced(depth), self._braced(depth)
            return top / bottom
        token = None if self.at_end else self._tokens[self._next]
        if not isinstance(token, Fraction):
            raise _NotExactError
        self._next += 1
        return token

    def _braced(self, depth: int) -> Fraction:
        self._expect("{")
        value = self.sum(depth + 1)
        self._expect("}")
        return value
