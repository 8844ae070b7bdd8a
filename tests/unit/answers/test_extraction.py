"""Reading the answer out of a trace, in every mode and in every dress that models give it."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.answers.boxes import boxes
from decoder_worker.answers.extraction import AnswerMode, extract, final_text

THOUGHT = "Let me see. \\boxed{1}\n\nAnswer: A\n\n"


def answer(text: str, mode: str, *, finish: str = "stop", regex: str | None = None) -> str | None:
    """Of a trace that has thought before, and thought something else."""
    return extract(f"{THOUGHT}</think>\n\n{text}", mode, finish=finish, regex=regex)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"The answer is \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{\sqrt{2}}}", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{ 42 }", "42"),
        (r"\boxed {42}", "42"),
        (r"\fbox{42}", "42"),
        (r"first \boxed{41}, then \boxed{42}", "42"),
        (r"\boxed{41} and \boxed{42", "41"),
        (r"\boxed{41} and \boxed{\frac{1}{2}", "41"),
        (r"\boxed{41} and \boxed{}", "41"),
        (r"\boxed{41} and \boxed{\ }", "41"),
        (r"\boxed{\boxed{42}}", "42"),
        (r"\boxed{ \text{so } \boxed{42}", "42"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{1\\2}", r"1\\2"),
        (r"\boxed{35 \text{ cm}}", r"35 \text{ cm}"),
        ("\\boxed{3\n\nhence \\boxed{4}", "4"),
        ("\\boxed{3\n\nhence} nothing", None),
        ("\\boxed{\n3\n}", "3"),
        ("42", None),
        (r"\boxed", None),
        ("", None),
    ],
)
def test_boxed(text: str, expected: str | None) -> None:
    assert answer(text, "boxed") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("B", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("B)", "B"),
        ("**B**", "B"),
        ("$B$", "B"),
        ("B) 12", "B"),
        ("(B) Paris", "B"),
        ("B. Paris", "B"),
        ("b", "B"),
        (r"\boxed{B}", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{\textbf{(B) } 42}", "B"),
        (r"\boxed{\mathrm{B}}", "B"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{B. 42}", "B"),
        (r"\boxed{\text{Option B}}", "B"),
        (r"\boxed{b}", "B"),
        (r"$$\boxed{\text{B}}$$", "B"),
        ("Answer: D", "D"),
        ("ANSWER: D.", "D"),
        ("**Answer:** D", "D"),
        ("**Answer: D**", "D"),
        ("Answer: (D)", "D"),
        ("Answer: $D$", "D"),
        ("Answer: [D]", "D"),
        ("Answer\n\nD", "D"),
        ("Final Answer: \\text{D}", "D"),
        ("The answer is D", "D"),
        ("The answer is D because A is too small.", "D"),
        ("The correct answer is therefore option D.", "D"),
        ("The correct option is (D): 12", "D"),
        ("So the answer is:\n\n**(D) Paris**", "D"),
        ("the answer is d.", "D"),
        ("Therefore, (D) is correct.", "D"),
        ("D is the right answer.", "D"),
        ("Therefore, **D**", "D"),
        ("Of the five only (D) remains possible here", "D"),
        ("Answer: D, with a stray box \\boxed{42} elsewhere", "D"),
        ("I note \\boxed{x = 3}. Answer: D", "D"),
        ("\\boxed{\\sqrt{a}}, hence D is the right answer", "D"),
        ("Option A is wrong. Option B is too large. The answer is C.", "C"),
        ("The answer is B, not A.", "B"),
        ("\\boxed{A}? No, wait. Answer: \\boxed{B}", "B"),
        ("The answer is A. No: the answer is B.", "B"),
        ("<answer>B</answer>", "B"),
        ("It is not (A).\n<answer> (B) </answer>", "B"),
        ("The answer cannot be A, so it must be B.", "B"),
        ("The answer can't be A; the answer has to be B, I think.", "B"),
        (r"\boxed{\text{Option}\ B}", "B"),
        (r"The answer is\,\,B", "B"),
        (r"We choose (\,B\,) because it fits all cases here", "B"),
        ("The answer is a number", None),
        ("Answer: I think it is unclear", None),
        ("It is forty-two", None),
        (r"\boxed{42}", None),
        (r"\boxed{C_2}", None),
        (r"\boxed{a+b}", None),
        ("", None),
    ],
)
def test_choice(text: str, expected: str | None) -> None:
    assert answer(text, "choice") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"The answer is \boxed{097}.", "97"),
        (r"\boxed{97.0}", "97"),
        (r"\boxed{1,234}", "1234"),
        (r"\boxed{1{,}234}", "1234"),
        (r"\boxed{1\,234}", "1234"),
        (r"\boxed{-5}", "-5"),
        (r"\boxed{−5}", "-5"),
        (r"\boxed{x = 12}", "12"),
        (r"\boxed{m + n = 12}", "12"),
        (r"\boxed{12 \text{ cm}}", "12"),
        (r"\boxed{\text{12}}", "12"),
        (r"\boxed{x \equiv 97 \pmod{1000}}", "97"),
        (r"\boxed{97 \bmod 1000}", "97"),
        (r"\boxed{2^{10}}", "1024"),
        (r"\boxed{\frac{6}{2}}", "3"),
        (r"17 tries, \boxed{12}, page 3", "12"),
        (r"\boxed{3.5} = 7", None),
        (r"\boxed{\text{ninety}} 90", None),
        (r"\boxed{} so 90", "90"),
        ("The answer is 42.", "42"),
        ("The answer is 1e+22", None),
        ("The answer is 5E-5", None),
        ("The answer is **42**", "42"),
        ("It is 1,234,567.", "1234567"),
        ("$1{,}234$", "1234"),
        ("values 3, 4 and 5", "5"),
        ("it is -5", "-5"),
        ("between 10-12", "12"),
        ("(3)-4", "4"),
        ("007", "7"),
        ("-0", "0"),
        ("42.0", "42"),
        ("half of 8 is \\frac{8}{2} apples", "8"),
        ("12 apples in step2", "12"),
        ("3.14", None),
        ("1/2", None),
        ("1 / 2", None),
        ("2^{10}", None),
        ("10^-3", None),
        ("2^{-3}", None),
        ("12/4 = 3", "3"),
        ("2^{-3} of 16 is 2", "2"),
        ("the answer is 5×10^3", None),
        (r"the answer is 5 \cdot 10^{3}", None),
        ("5 × 10 = 50", "50"),
        ("The value is 12 (mod 1000).", "12"),
        ("it is 12 mod 1000", "12"),
        ("12 modulo 1,000", "12"),
        (r"$x \equiv 12 \pmod{1000}$", "12"),
        (r"x = 1012 \bmod 1000 = 12", "12"),
        ("model 3", "3"),
        ("no number", None),
        ("9" * 5000, None),
        ("", None),
    ],
)
def test_integer(text: str, expected: str | None) -> None:
    assert answer(text, "integer") == expected


@pytest.mark.parametrize(
    ("text", "regex", "expected"),
    [
        ("x=1; x=2", r"x=(\d)", "2"),
        ("x=1; x=2", r"x=\d", "x=2"),
        ("x=1", r"x=(\d)(y)?", "1"),
        ("x", r"x(y)?", None),
        ("nothing", r"x=(\d)", None),
        ("nothing", r"\d*", None),
    ],
)
def test_regex(text: str, regex: str, expected: str | None) -> None:
    assert answer(text, "regex", regex=regex) == expected


def test_a_bad_pattern_is_the_callers_error() -> None:
    with pytest.raises(re.error):
        answer("x", "regex", regex="(")


def test_none_is_the_text_after_the_thinking_as_it_is() -> None:
    assert answer("  It depends.\n\nOn <b>you</b>.  ", "none") == "It depends.\n\nOn <b>you</b>."
    assert answer("  ", "none") is None


class TestThinking:
    @pytest.mark.parametrize("mode", list(AnswerMode))
    def test_cut_inside_the_thinking_there_is_no_answer(self, mode: AnswerMode) -> None:
        text = "<think>So \\boxed{12} it is. Answer: B"
        assert extract(text, mode, finish="length", regex=".+") is None

    @pytest.mark.parametrize(("mode", "expected"), [("boxed", "12"), ("choice", "B"), ("integer", "12")])
    def test_cut_after_it_what_is_complete_counts(self, mode: str, expected: str) -> None:
        text = {
            "boxed": "\\boxed{12} or \\boxed{13",
            "choice": "Answer: B. Answer: C",
            "integer": "12 then 13",
        }
        assert answer(text[mode], mode, finish="length") == expected

    def test_without_an_end_but_stopped_all_of_the_text_counts(self) -> None:
        assert extract("Sure. \\boxed{12}", "boxed", finish="stop") == "12"
        assert extract("<think>Sure. Answer: B", "choice", finish="stop") == "B"

    def test_the_first_end_ends_it(self) -> None:
        text = "hm</think>Write `</think>` to end. \\boxed{12}"
        assert extract(text, "boxed", finish="stop") == "12"
        assert final_text(text) == "Write `</think>` to end. \\boxed{12}"

    def test_the_thinking_itself_is_not_read(self) -> None:
        assert extract("\\boxed{1}</think>I do not know.", "boxed", finish="stop") is None

    def test_final_text_without_thinking(self) -> None:
        assert final_text(" all ") == "all"


@pytest.mark.parametrize("mode", ["boxed", "choice", "integer"])
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 20_000,
        "{" * 100_000,
        " " * 200_000,
        "answer " * 30_000,
        "1," * 50_000,
        "(A" * 50_000,
        "." * 50_000,
        "~" * 50_000,
        "$ " * 50_000,
        "0." + "12" * 50_000,
        "0." + "1" * 100_000,
        ".11" * 30_000,
        "mod (" * 20_000,
        "sqrt(" * 20_000,
        "\\text{" * 20_000,
        "\\text{" * 20_000 + "}" * 20_000,
        "\\boxed{" + "\\text{" * 20_000 + "5" + "}" * 20_001,
        "\\boxed{" + "1,000" * 20_000 + ", 5}",
        "\\boxed{" + "2 \\approx" * 10_000 + "}",
        "\\boxed{" + "abc " * 20_000 + "}",
    ],
    ids=lambda text: text[:14],
)
def test_repetitions_are_read_quickly(text: str, mode: str) -> None:
    started = time.monotonic()
    answer(text, mode)
    assert time.monotonic() - started < 60


@given(st.text(alphabet="\\boxed{}12 \n", max_size=200))
def test_boxes_hold_what_they_say(text: str) -> None:
    for box in boxes(text):
        inside = text[box.start : box.end]
        assert inside.startswith("\\boxed")
        assert inside.endswith("}")
        assert box.content in inside


@given(
    st.text(max_size=300),
    st.sampled_from(["boxed", "choice", "integer", "none"]),
    st.sampled_from(["stop", "length"]),
)
def test_any_text_can_be_read(text: str, mode: str, finish: str) -> None:
    found = extract(text, mode, finish=finish)
    assert found is None or found
