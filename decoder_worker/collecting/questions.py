"""Lists of questions with known answers: JSON lines with `question`, `answer` and, if wanted, `id`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decoder_worker.answers.extraction import AnswerMode, extract
from thoughtbeam.runtime.scorer_dataset import question_key

MODES = tuple(mode.value for mode in AnswerMode)


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
            lines = path.read_text(encoding="utf-8").splitlines()
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


def _read(line: str, where: str, mode: str) -> Question:
    try:
        item = json.loads(line)
    except ValueError:
        item = None
    if not isinstance(item, dict):
        raise QuestionError(f"{where}: is no JSON object; must have the fields question and answer")
    text, answer = item.get("question"), item.get("answer")
    if not isinstance(text, str) or not text.strip():
        raise QuestionError(f"{where}: question: {_said(item, 'question')}; must be a text that is not empty")
    if isinstance(answer, bool) or not isinstance(answer, str | int | float) or not str(answer).strip():
        raise QuestionError(f"{where}: answer: {_said(item, 'answer')}; must be a text or a number")
    key = question_key(text)
    return Question(key, str(item.get("id", key)), text, _right_answer(str(answer), where, mode))


def _said(item: dict[str, object], name: str) -> str:
    return f"is {item[name]!r}" if name in item else "is missing"


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
