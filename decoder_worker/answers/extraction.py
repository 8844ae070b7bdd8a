"""Reads a trace's final answer from its text."""

from __future__ import annotations

import enum
import re

from decoder_worker.answers.boxes import boxes
from decoder_worker.answers.choice import choice
from decoder_worker.answers.exact import exact_number
from decoder_worker.answers.normal import normalise, without_unit

THINK_END = "</think>"

_INTEGER = re.compile(
    r"""
    (?<![\w.^/\\]) (?<!\^\{) (?<!\d[eE][-+])
    (?: (?<![)\]}]) [-+] )?
    (?: [1-9]\d{0,2} (?:,\d{3})+ | \d+ ) (?: \.0+ )?
    (?! \w | \.\d | ,\d{3} | \s*[/^] | \s* (?: [*×·] | \\times | \\cdot ) \s* 10 \s* \^ )
    """,
    re.VERBOSE,
)
_FRACTION = re.compile(r"\\frac\s*\{[^{}]*\}\s*\{[^{}]*\}|(?<![\d,.])\d[\d,.]*(?:\s*/\s*\d[\d,.]*)+")
_EXPONENT = re.compile(r"(?<=\^)\s*(?:\{[^{}]*\}|[-+]?\w+)")
_MODULUS = re.compile(r"\s*\(?\\?(?<![a-zA-Z])[bp]?mod(?![a-zA-Z]).*$", re.DOTALL)
_MODULUS_IN_TEXT = re.compile(r"\(?\s*\\?\b(?:[bp]?mod|modulo)\s*\{?\s*[\d,]*\d\}?\s*\)?")
_EQUALS = re.compile(r"=|\\equiv(?![a-zA-Z])")
_MOST_DIGITS = 1000


class AnswerMode(enum.StrEnum):
    """How an answer is read, and what makes two of them equal."""

    BOXED = "boxed"  # the last complete \boxed{…}
    CHOICE = "choice"  # a capital letter, in any dress
    INTEGER = "integer"  # a whole number; 097 is 97
    REGEX = "regex"  # the client's pattern
    NONE = "none"  # the text after the thinking, as it is


def final_text(text: str) -> str:
    """What follows the thinking; all of the text when the thinking has no end."""
    _, mark, after = text.partition(THINK_END)
    return (after if mark else text).strip()


def extract(text: str, mode: str, *, finish: str, regex: str | None = None) -> str | None:
    """A finished trace's answer, None without one.

    text: everything that it generated. mode: an AnswerMode. finish: `stop`, or `length` for a trace that was
    cut by its length limit: inside its thinking it has no answer, and its last word may be half a word.
    regex: for the mode of that name; the first group (or whole match) of its last match counts. It runs for
    as long as it takes: Equivalence.extract is for patterns that nobody has checked.

    Raises re.error for a bad pattern.
    """
    cut = finish == "length"
    if cut and THINK_END not in text:
        return None
    after = final_text(text)
    match AnswerMode(mode):
        case AnswerMode.BOXED:
            return _last_box(after)
        case AnswerMode.CHOICE:
            return choice(_without_last_word(after) if cut else after)
        case AnswerMode.INTEGER:
            return _integer(after, cut)
        case AnswerMode.REGEX:
            return _last_match(regex or "", after)
        case AnswerMode.NONE:
            return after or None


def _without_last_word(text: str) -> str:
    """The text without a last word that may be half a word; a box that is complete stays."""
    if not text:
        return text
    last_word = len(text) - len(text.rsplit(maxsplit=1)[-1])
    return text[: max([last_word, *(box.end for box in boxes(text))])]


def _last_box(text: str) -> str | None:
    """Content of the last box that is complete and not empty."""
    return next((box.content.strip() for box in reversed(boxes(text)) if normalise(box.content)), None)


def _integer(text: str, cut: bool) -> str | None:
    """The whole number in the last box, else, where nothing is boxed, the last one of the text."""
    boxed = _last_box(text)
    if boxed is not None:
        stated = _EQUALS.split(_MODULUS.sub("", normalise(boxed)))[-1]
        return _whole(without_unit(stated.strip()))
    text = _without_last_word(text) if cut else text
    no_parts = _EXPONENT.sub("", _FRACTION.sub(" ", normalise(text)))
    numbers = _INTEGER.findall(_MODULUS_IN_TEXT.sub(" ", no_parts))
    return _whole(numbers[-1]) if numbers else None


def _whole(text: str) -> str | None:
    value = exact_number(text)
    if value is None or value.denominator != 1 or abs(value) >= 10**_MOST_DIGITS:
        return None
    return str(value.numerator)


def _last_match(pattern: str, text: str) -> str | None:
    matches = list(re.finditer(pattern, text))
    if not matches:
        return None
    last = matches[-1]
    return (last[1] if last.re.groups else last[0]) or None
