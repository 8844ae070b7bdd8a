"""Groups answers by mathematical equality, not by string.

Most answers are settled here: the same spelling, or two numbers that are compared exactly. The rest is
compared by math-verify in processes that can be killed. What cannot be read equals its own spelling only.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import TracebackType
from typing import Self, TypeVar

from decoder_worker.answers import symbolic
from decoder_worker.answers.exact import MOST_BITS, bits, exact_number
from decoder_worker.answers.extraction import AnswerMode, extract
from decoder_worker.answers.normal import normalise, without_unit
from decoder_worker.answers.processes import KillableProcesses, KilledError
from thoughtbeam.runtime.log import EventLogger

T = TypeVar("T")

WORKERS = 2
COMPARISON_SECONDS = 2.0
GROUPING_SECONDS = 60.0
MOST_CHARACTERS = 300  # of an expression; longer ones are prose

_WORD = re.compile(r"(?<![a-zA-Z\\])(?<!\\begin\{)(?<!\\end\{)(?:[^\W\d_]{3,}|[nN]o(?![a-zA-Z]))|\\text\{")
# what the parser passes over: primes, what is left out, digits that no operator joins, conditions, lines
_NOT_READ = re.compile(
    r"""['"]|\\[lc]?dots|(?<![_^\d])\d+\s+\d|\\\{[^{}]*:|^(?!.*\\begin).*\\\\|:\d\d\s*[aApP]\.?[mM]"""
)
_FUNCTION = re.compile(r"(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|log|exp|max|min|gcd|lcm|det")
_LETTER = re.compile(r"\\text\{\s*([a-zA-Z])\s*\}")
_PAIR = re.compile(r"\(\s*-?\d{1,3}(?:,-?[1-9]\d\d)+\s*\)")  # or an interval; not thousands in brackets
_BLANK = re.compile(r"(?<!\d)\s+|\s+(?!\d)")  # that means nothing: not between two digits
_BRACKETS = " ()[]{}"
_OUTSIDE = " .,;:!?'\"`*_()[]{}"

log = EventLogger("decoder_worker.answers")


@dataclass(frozen=True, slots=True)
class _Form:
    """An answer as it is compared. key: equal keys are equal answers; a number is its own key.

    expression: what to compare by mathematics, or None for words, which are equal by key alone.
    """

    key: str | Fraction
    expression: str | None

    def differs_for_certain(self, other: _Form) -> bool:
        """Whether no mathematics is needed to tell the two apart, their keys being different."""
        return (
            self.expression is None
            or other.expression is None
            or (isinstance(self.key, Fraction) and isinstance(other.key, Fraction))
        )


class Equivalence:
    """Compares answers; an async context manager that owns the comparison processes.

    They start with the first comparison that needs one. Any number of tasks may use it at the same time, also
    of event loops in other threads; each has at most one comparison under way, so that one hanging answer
    holds up no others.
    """

    def __init__(
        self, *, workers: int = WORKERS, seconds: float = COMPARISON_SECONDS, budget: float = GROUPING_SECONDS
    ) -> None:
        """workers: processes. seconds: longest comparison. budget: seconds for one call of `group`."""
        self._processes = KillableProcesses(symbolic.warm_up, workers=workers, seconds=seconds)
        self._budget = budget

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._processes.close()

    @property
    def processes_started(self) -> bool:
        """Whether anything has needed a process so far."""
        return self._processes.started

    async def group(self, answers: Sequence[str | None], mode: str) -> list[int | None]:
        """For each answer the index of its group of equal ones, by first appearance; None for no answer.

        mode: an AnswerMode. An answer joins the first group whose first member it equals in either direction,
        so that equality is symmetric and transitive. A comparison that has to be killed, or that the budget
        leaves no time for, counts as unequal.
        """
        grouping = _Grouping(self._processes, time.monotonic() + self._budget)
        return [
            None if answer is None else await grouping.place(_form(answer, AnswerMode(mode)))
            for answer in answers
        ]

    async def extract(self, text: str, mode: str, *, finish: str, regex: str | None = None) -> str | None:
        """extraction.extract, with a client's pattern run where it can be killed; then there is no answer.

        Raises re.error for a bad pattern.
        """
        if mode != AnswerMode.REGEX:
            return extract(text, mode, finish=finish)
        try:
            return await self._processes.run(extract, text, mode, finish=finish, regex=regex)
        except KilledError:
            log.warning("answer_regex_killed")
            return None


class _Grouping:
    """The groups of one request as they grow. deadline: on the monotonic clock."""

    def __init__(self, processes: KillableProcesses, deadline: float) -> None:
        self._processes = processes
        self._deadline = deadline
        self._groups: dict[str | Fraction, int] = {}
        self._firsts: list[_Form] = []
        self._fingerprints: dict[str | Fraction, str | None] = {}

    async def place(self, form: _Form) -> int:
        """Index of the answer's group, old or new."""
        if form.key not in self._groups:
            index = await self._find(form)
            if index is None:
                index = len(self._firsts)
                self._firsts.append(form)
            self._groups[form.key] = index
        return self._groups[form.key]

    async def _find(self, form: _Form) -> int | None:
        for index, first in enumerate(self._firsts):
            if not form.differs_for_certain(first) and await self._equal(form, first):
                return index
        return None

    async def _equal(self, form: _Form, first: _Form) -> bool:
        mine, theirs = await self._fingerprint(form), await self._fingerprint(first)
        if mine is None or theirs is None or (mine and theirs and mine != theirs):
            return False
        return bool(await self._ask(symbolic.equal, first.expression, form.expression))

    async def _fingerprint(self, form: _Form) -> str | None:
        """Found out once for each answer: so that one that hangs does not do so against every other, and all
        pairs of numbers and terms need no comparison."""
        if form.key not in self._fingerprints:
            self._fingerprints[form.key] = await self._ask(symbolic.fingerprint, form.expression)
        return self._fingerprints[form.key]

    async def _ask(self, question: Callable[..., T], *expressions: str | None) -> T | None:
        """None: killed, or no time left."""
        if time.monotonic() >= self._deadline:
            return None
        try:
            return await self._processes.run(question, *expressions)
        except KilledError:
            log.warning("comparison_killed")
            return None


def _form(answer: str, mode: AnswerMode) -> _Form:
    match mode:
        case AnswerMode.NONE:
            return _Form(" ".join(answer.split()), None)
        case AnswerMode.CHOICE:
            return _Form(answer.strip().upper(), None)
    text = normalise(answer)
    bare = _LETTER.sub(r"\1", without_unit(text))
    if mode is AnswerMode.BOXED and _PAIR.fullmatch(bare):
        bare = bare.replace(",", ", ")
    number = exact_number(bare)
    if number is not None:
        # an expression knows no bases, no mixed numbers, no periods; Python writes no numbers of any length
        return _Form(number, str(number) if bits(number) <= MOST_BITS else bare)
    if mode is AnswerMode.INTEGER or _is_prose(bare):
        return _Form(_words(text), None)
    return _Form(_BLANK.sub("", bare), bare)


def _is_prose(text: str) -> bool:
    """Whether it is words rather than an expression, which would read them as products of their letters."""
    if len(text) > MOST_CHARACTERS or len(text.strip(_BRACKETS)) < 2 or _NOT_READ.search(text):
        return True
    return any(not _FUNCTION.fullmatch(match.group()) for match in _WORD.finditer(text))


def _words(text: str) -> str:
    plain = text.replace("\\text{", "").replace("{", "").replace("}", "")
    return " ".join(plain.casefold().strip(_OUTSIDE).split()) or text
