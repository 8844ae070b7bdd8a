"""Which answers are the same: a table of shapes that models really write, and the rules of grouping."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.answers.equivalence import Equivalence

EQUAL = [
    # spelling
    ("12", " 12 "),
    ("12", "$12$"),
    ("12", r"\(12\)"),
    ("12", "12."),
    ("12", "**12**"),
    ("12", r"\text{12}"),
    ("-5", "−5"),
    (r"\frac{1}{2}", r"\dfrac{1}{2}"),
    (r"\frac{1}{2}", r"\tfrac12"),
    (r"\frac{1}{2}", r"\frac 1 2"),
    (r"\left(1, 2\right)", "(1,2)"),
    (r"\left[0, 1\right)", "[0,1)"),
    (r"\emptyset", r"\varnothing"),
    (r"\text{Evelyn}", "evelyn"),
    ("Yes", "yes."),
    (r"\text{No solution}", "no  solution"),
    (r"\text{(B)}", "B"),
    (r"\mathrm{even}", r"\text{even}"),
    # numbers
    ("0.5", r"\frac{1}{2}"),
    ("1/2", ".5"),
    ("097", "97"),
    ("97.0", "97"),
    ("1,234", "1234"),
    ("1{,}234", "1234"),
    (r"1\,234", "1234"),
    (r"10,\!000", "10000"),
    ("1 234 567", "1,234,567"),
    ("2 2/3", r"\frac{8}{3}"),
    (r"2\frac{2}{3}", "8/3"),
    (r"-2\frac{1}{2}", "-2.5"),
    (r"1.5 \times 10^3", "1500"),
    ("1.5e3", "1500"),
    ("2^{10}", "1024"),
    (r"\frac{1}{2^{98}}", "1/2^98"),
    (r"0.\overline{3}", r"\frac13"),
    (r"0.1\overline{6}", "1/6"),
    (r"3\cdot 7", "21"),
    ("½", "0.5"),
    # units
    (r"35 \text{ cm}", "35"),
    (r"35\,\mathrm{cm}^2", "35"),
    (r"28\%", "28"),
    (r"90^\circ", "90"),
    ("90°", "90 degrees"),
    (r"\$12.50", "12.5 dollars"),
    ("12 miles per hour", "12"),
    (r"10\ \text{m}/\text{s}", "10"),
    (r"5\sqrt{2} \text{ cm}", r"5\sqrt{2}"),
    # mathematics
    (r"\sqrt{4}", "2"),
    (r"\sqrt{8}", r"2\sqrt{2}"),
    (r"\frac{\sqrt{3}}{3}", r"\frac{1}{\sqrt{3}}"),
    (r"\log_2 8", "3"),
    (r"\binom{5}{2}", "10"),
    ("5!", "120"),
    ("(x+1)^2", "x^2 + 2x + 1"),
    ("b+a", "a+b"),
    ("x=5", "5"),
    ("y = 2x + 1", "2x - y + 1 = 0"),
    (r"\frac{a}{b}", "a/b"),
    (r"\mathrm{e}^2", "e^2"),
    (r"\pm 3", "3, -3"),
    (r"1 \le x \le 2", "[1,2]"),
    (r"x \in [1,2]", "[1,2]"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1\\2\end{bmatrix}"),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
    # parts in another order
    (r"\{1, 2, 3\}", r"\{3, 1, 2\}"),
    ("1, 2", "2,1"),
    ("1331 and 1728", "1728, 1331"),
    (r"x = 5 \text{ or } x = 3", "3, 5"),
    (r"(-\infty,1)\cup(2,3)", r"(2,3) \cup (-\infty,1)"),
    (r"(-\infty,-2]\cup[2,\infty)", r"[2,\infty)\cup(-\infty,-2]"),
]

UNEQUAL = [
    ("12", "13"),
    ("12", "-12"),
    ("1331 and 1728", "1728"),
    ("1/2^98", "1/2^99"),
    (r"\frac{1}{2^{98}}", r"\frac{1}{2^{99}}"),
    (r"\frac{\pi}{2^{98}}", r"\frac{\pi}{2^{99}}"),
    (r"\frac{x}{2^{98}}", r"\frac{x}{2^{99}}"),
    ("100000000000000000000", "100000000000000000001"),
    ("0.333", r"\frac{1}{3}"),
    ("3.14159", r"\pi"),
    ("1.414214", r"\sqrt{2}"),
    ("1,234", "1, 234"),
    ("5 million", "5"),
    ("28", "0.28"),
    ("(1,2)", "(2,1)"),
    ("(1,2)", "[1,2]"),
    ("[1,2)", "(1,2]"),
    ("x=5", "y=5"),
    ("2n+1", "2k+1"),
    ("blue", "lube"),
    (r"\text{even}", r"\text{odd}"),
    ("No", "Yes"),
    (r"\emptyset", "0"),
    (r"\ln 2", r"\log 3"),
    ("A", "B"),
    ("{{", "}}"),
    (r"\frac{1}{", r"\frac{1}"),
]


@pytest.mark.parametrize(("left", "right"), EQUAL)
async def test_equal(patient: Equivalence, left: str, right: str) -> None:
    assert await patient.group([left, right], "boxed") == [0, 0]
    assert await patient.group([right, left], "boxed") == [0, 0]


@pytest.mark.parametrize(("left", "right"), UNEQUAL)
async def test_unequal(patient: Equivalence, left: str, right: str) -> None:
    assert await patient.group([left, right], "boxed") == [0, 1]
    assert await patient.group([right, left], "boxed") == [0, 1]


async def test_groups_are_numbered_by_first_appearance_and_no_answer_has_none(
    patient: Equivalence,
) -> None:
    answers = ["3", None, r"\frac{1}{2}", "3.0", None, "0.5", "7"]
    assert await patient.group(answers, "boxed") == [0, None, 1, 0, None, 1, 2]
    assert await patient.group([], "boxed") == []
    assert await patient.group([None], "boxed") == [None]


async def test_an_answer_joins_the_group_of_its_first_member(patient: Equivalence) -> None:
    # x = 5 and y = 5 are different, but both are 5: the group decides, and each answer is in one only
    assert await patient.group(["5", "x=5", "y=5"], "boxed") == [0, 0, 0]
    assert await patient.group(["x=5", "y=5", "5"], "boxed") == [0, 1, 0]


async def test_a_tower_of_powers_harms_nobody(equivalence: Equivalence) -> None:
    tower = "5^{5^{5^{5^5}}}"

    async def another(i: int) -> list[int | None]:
        return await equivalence.group([rf"\sqrt{{{i * i}}}", str(i)], "boxed")

    async with asyncio.timeout(120):
        with_tower, *others = await asyncio.gather(
            equivalence.group(["2", tower, r"\sqrt{4}", tower, "7", r"\sqrt{49}"], "boxed"),
            *(another(i) for i in range(1, 101)),
        )
    assert with_tower == [0, 1, 0, 1, 2, 2]
    assert others == [[0, 0]] * 100


async def test_what_hangs_is_killed_once_not_against_every_other(caplog: pytest.LogCaptureFixture) -> None:
    answers = ["5^{5^{5^{5^5}}}", *map(str, range(40))]
    async with Equivalence(workers=1, seconds=0.5) as hasty:
        assert await hasty.group(answers, "boxed") == list(range(41))
    assert [record.getMessage() for record in caplog.records] == ["comparison_killed"]


async def test_past_the_budget_answers_are_compared_by_spelling_only() -> None:
    async with Equivalence(budget=0.0) as hurried:
        assert await hurried.group([r"\sqrt{4}", "2", "2.0", r"\sqrt{4}"], "boxed") == [0, 1, 1, 0]
        assert not hurried.processes_started


@pytest.mark.parametrize(
    ("mode", "answers", "groups"),
    [
        ("integer", ["97", "97", "98", None], [0, 0, 1, None]),
        ("integer", ["097", "97", "1,000", "1000"], [0, 0, 1, 1]),
        ("integer", [r"\sqrt{4}", "2"], [0, 1]),
        ("choice", ["B", "b", "A", None, "B"], [0, 0, 1, None, 0]),
        ("none", ["x + 1", "1 + x", " x  +\n1 "], [0, 1, 0]),
        ("boxed", ["1/2", "0.5", "Paris", "paris"], [0, 0, 1, 1]),
    ],
)
async def test_no_process_is_started_without_need(
    mode: str, answers: list[str | None], groups: list[int | None]
) -> None:
    async with Equivalence() as lazy:
        assert await lazy.group(answers, mode) == groups
        assert not lazy.processes_started


async def test_answers_of_a_pattern_are_compared_as_mathematics(patient: Equivalence) -> None:
    assert await patient.group(["1/2", "0.50", r"\sqrt{4}", "2"], "regex") == [0, 0, 1, 1]


NUMBERS = st.fractions(max_denominator=999)


@settings(deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=12), st.randoms())
async def test_numbers_are_grouped_exactly(numbers: list, random) -> None:  # type: ignore[type-arg, no-untyped-def]
    """Whatever the spelling of a fraction, groups are those of the values."""

    def spelling(value) -> str:  # type: ignore[no-untyped-def]
        top, bottom = value.numerator, value.denominator
        plain = [f"{top}/{bottom}", rf"\frac{{{top}}}{{{bottom}}}", rf"\dfrac{{{2 * top}}}{{{2 * bottom}}}"]
        if bottom == 1:
            plain += [str(top), f"{top:,}", f"{top}.0", rf"{top} \text{{ cm}}"]
        return random.choice(plain)

    order = list(dict.fromkeys(numbers))
    async with Equivalence() as lazy:
        groups = await lazy.group([spelling(n) for n in numbers], "boxed")
        assert not lazy.processes_started
    assert groups == [order.index(n) for n in numbers]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(alphabet=r"\{}()[]^_/+-*=,.$% 0123459xabtexfrcs", max_size=20), max_size=4))
async def test_nothing_that_a_model_writes_raises(answers: list[str]) -> None:
    """Normalising, exact numbers and forms take any text; equal spellings are equal answers."""
    async with Equivalence(budget=0.0) as lazy:
        groups = await lazy.group([*answers, *answers], "boxed")
    assert groups[: len(answers)] == groups[len(answers) :]
