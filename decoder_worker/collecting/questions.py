"""Lists of questions with known answers: JSON lines with `question`, `answer` and, if wanted, `id`."""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from decoder_worker.answers.exact import MOST_CHARACTERS
from decoder_worker.answers.extraction import AnswerMode, extract
from thoughtbeam.runtime.scorer_dataset import question_key

MODES = tuple(mode.value for mode in AnswerMode)

_MOST_DIGITS = MOST_CHARACTERS - 2  # beside a sign and a point, of what can still be compared as a number
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class QuestionError(ValueError):
    """A list of questions that cannot be used; one line that names the file, the line and the field."""


@dataclass(frozen=True, slots=True)
class Question:
    """key: see question_key. name: what people call it. answer: the right one, as those of traces are."""

    key: str
    name: str
    text: str
    answer: str


def read_questions(
    paths: Sequence[Path], mode: str, regex: str | None = None, limit: int = 0
) -> list[Question]:
    """The questions of these lists; one that comes again is left out. limit: most of them, 0: all.

    In the order of their keys, which is a random one and the same each time: however many of them are taken,
    or done when a run is interrupted, they are a fair sample of all lists.

    mode, regex: how answers are read, as in AnswerMode. Raises QuestionError.
    """
    _check_mode(mode, regex)
    found: dict[str, Question] = {}
    for path in paths:
        try:
            # not splitlines: it also splits at characters that may stand inside a JSON text
            lines = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise QuestionError(f"questions: {path} cannot be read: {error}") from None
        for number, line in enumerate(lines, start=1):
            if line.strip():
                question = _read(line, f"{path.name}, line {number}", mode)
                found.setdefault(question.key, question)
    if not found:
        raise QuestionError(f"questions: {', '.join(map(str, paths))}: there must be at least one question")
    return sorted(found.values(), key=lambda question: question.key)[: limit or None]


def _check_mode(mode: str, regex: str | None) -> None:
    if mode == AnswerMode.REGEX:
        if not regex:
            raise QuestionError("answer_regex: is missing; must be given with the answer mode regex")
        try:
            re.compile(regex)
        except re.error as error:
            raise QuestionError(
                f"answer_regex: is {regex!r}; must be a regular expression: {error}"
            ) from None


@dataclass(frozen=True, slots=True, repr=False)
class _Number:
    """A JSON number as it is written; a float would be another one."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def plain(self) -> str | None:
        """Without an exponent; None if that takes too many digits."""
        try:
            value = Decimal(self.text)
        except InvalidOperation:  # its exponent has twenty digits itself
            return None
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        before, after = max(len(digits) + exponent, 1), max(-exponent, 0)
        return f"{value:f}" if before + after <= _MOST_DIGITS else None


def _read(line: str, where: str, mode: str) -> Question:
    item = _parsed(line, where)
    text, answer = item.get("question"), item.get("answer")
    if not isinstance(text, str) or not text.strip():
        raise QuestionError(f"{where}: question: {_said(item, 'question')}; must be a text that is not empty")
    known = answer.plain() if isinstance(answer, _Number) else answer
    if not isinstance(known, str) or not known.strip():
        raise QuestionError(
            f"{where}: answer: {_said(item, 'answer')}; must be a text or a number of at most "
            f"{_MOST_DIGITS} digits"
        )
    key = question_key(text)
    name = key if item.get("id") is None else item["id"]
    if not isinstance(name, str | _Number):
        raise QuestionError(f"{where}: id: {_said(item, 'id')}; must be a text or a number")
    return Question(key, str(name), text, _right_answer(known, where, mode))


def _parsed(line: str, where: str) -> dict[str, object]:
    try:
        item = json.loads(line, parse_int=_Number, parse_float=_Number)
    except (ValueError, RecursionError):
        item = None
    if not isinstance(item, dict):
        raise QuestionError(f"{where}: is no JSON object; must have the fields question and answer")
    for name in ("question", "answer", "id"):
        if isinstance(value := item.get(name), str) and _SURROGATE.search(value):
            raise QuestionError(f"{where}: {name}: {_said(item, name)}; must be text without lone surrogates")
    return item


def _said(item: dict[str, object], name: str) -> str:
    return f"is {reprlib.repr(item[name])}" if name in item else "is missing"


def _right_answer(answer: str, where: str, mode: str) -> str:
    """The known answer as one that was read from a trace: without the box or the brackets around it."""
    if mode == AnswerMode.REGEX:
        return answer
    read = extract(answer, mode, finish="stop")
    if read is None and mode == AnswerMode.CHOICE:
        raise QuestionError(f"{where}: answer: is {answer!r}; must be a letter in the answer mode choice")
    if read is None and mode == AnswerMode.INTEGER:
        raise QuestionError(
            f"{where}: answer: is {answer!r}; must be a whole number in the answer mode integer"
        )
    return answer.strip() if read is None else read
