"""What a model that has lost its way writes, the same again and again, costs the worker no time to speak of.

Answers are read where everything else waits for it: a trace of some tens of thousands of characters must not
take seconds.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from decoder_worker.answers import equivalence
from decoder_worker.answers.extraction import AnswerMode, extract

CHARACTERS = 30_000
SECONDS = 1.5  # of CPU time; what grows with the square of the length takes more, what is linear a hundredth

REPEATED = [
    *("a", "=", "-", "1", " ", "\n", "\t\n", "\u00a0", "~", "$", "(", "{", "}", "\\"),
    *("1 ", "1,", "1,111,", "A ", "A.", "(A) ", "I ", "a\n\n", " and ", ", ", "^", "1/", "x y "),
    *("answer ", "answer is ", "the ", "choice: ", "**", "\\,", "\\ ", "\\quad", "$\\,", "\\%~"),
    *("\\boxed{", "\\text{", "\\text{a}", "\\text{}", "\\frac{", "\\frac1", "\\left", "1 cm ", "1 hundred "),
]
AROUND = [("", ""), ("</think>The answer is ", " x"), ("</think>\\boxed{", "} x"), ("</think>\\boxed{", "")]


@pytest.mark.parametrize("repeated", REPEATED)
def test_an_answer_is_read_at_once(repeated: str) -> None:
    text = repeated * (CHARACTERS // len(repeated))
    for before, after in AROUND:
        for mode in (AnswerMode.BOXED, AnswerMode.CHOICE, AnswerMode.INTEGER, AnswerMode.NONE):
            for finish in ("stop", "length"):
                with at_once(f"{before}…{after}, {mode}, {finish}"):
                    extract(before + text + after, mode, finish=finish)


@pytest.mark.parametrize("repeated", REPEATED)
def test_an_answer_is_prepared_for_comparison_at_once(repeated: str) -> None:
    text = repeated * (CHARACTERS // len(repeated))
    for mode in AnswerMode:
        with at_once(mode):
            equivalence._form(f"{text}1", mode)


@contextmanager
def at_once(what: str) -> Iterator[None]:
    """Fails when the block takes longer than it may, then and there: it might take hours."""

    def fail(number: int, frame: object) -> None:
        raise AssertionError(f"{what}: takes longer than {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, fail)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
