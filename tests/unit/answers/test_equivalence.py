"""Which answers are the same: the table of shapes that models really write, and the rules of grouping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.answers.processes import KillableProcesses
from tests.unit.answers.shapes import EQUAL, TRACES, UNEQUAL


@pytest.mark.parametrize(("left", "right"), EQUAL)
async def test_equal(patient: Equivalence, left: str, right: str) -> None:
    assert await patient.group([left, right], "boxed") == [0, 0]
    assert await patient.group([right, left], "boxed") == [0, 0]


@pytest.mark.parametrize(("left", "right"), UNEQUAL)
async def test_unequal(patient: Equivalence, left: str, right: str) -> None:
    assert await patient.group([left, right], "boxed") == [0, 1]
    assert await patient.group([right, left], "boxed") == [0, 1]


@pytest.mark.parametrize(("text", "mode", "finish", "reference"), TRACES)
async def test_the_answer_of_a_trace_is_the_reference(
    patient: Equivalence, text: str, mode: str, finish: str, reference: str | None
) -> None:
    """From all that a trace generated, by way of extraction, to what the question's answer key says."""
    found = await patient.extract(text, mode, finish=finish, regex=r"(?i)result:\s*(\S+)")
    expected = [None, 0] if reference is None else [0, 0]
    assert await patient.group([found, reference or "1"], mode) == expected


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


def test_threads_with_event_loops_of_their_own_share_one() -> None:
    """Each grades many answers in many tasks at once; one of them has the tower."""
    shared = Equivalence()

    async def handler(thread: int) -> list[list[int | None]]:
        def answers(task: int) -> list[str]:
            number = 100 * thread + task
            first = "5^{5^{5^{5^5}}}" if (thread, task) == (1, 1) else "z"
            return [first, rf"\sqrt{{{number**2}}}", str(number), f"x = {number}"]

        return await asyncio.gather(*(shared.group(answers(task), "boxed") for task in range(1, 26)))

    with ThreadPoolExecutor(max_workers=4) as threads:
        handlers = [threads.submit(asyncio.run, handler(thread)) for thread in range(1, 4)]
        results = [done.result(timeout=120) for done in handlers]
    asyncio.run(shared.__aexit__(None, None, None))
    assert results == [[[0, 1, 1, 1]] * 25] * 3


async def test_what_hangs_is_killed_once_not_against_every_other(caplog: pytest.LogCaptureFixture) -> None:
    answers = ["5^{5^{5^{5^5}}}", *map(str, range(40))]
    async with Equivalence(workers=1, seconds=0.5) as hasty:
        assert await hasty.group(answers, "boxed") == list(range(41))
    assert [record.getMessage() for record in caplog.records] == ["comparison_killed"]


async def test_only_what_has_no_value_is_compared_in_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """256 answers, most plain, all different: a look at each, and pairs only of what has no value."""
    asked: list[str] = []
    run = KillableProcesses.run

    async def counting(self: KillableProcesses, question: Callable[..., object], *expressions: str) -> object:
        asked.append(question.__name__)
        return await run(self, question, *expressions)

    monkeypatch.setattr(KillableProcesses, "run", counting)
    plain = [str(number) for number in range(200)]
    kinds = (r"%d\sqrt{2}", "%dx+1", r"\{%d, \pi\}", "(%d, 0, 1)")
    terms = [kind % number for kind in kinds for number in range(1, 15)]
    async with Equivalence(seconds=30.0) as equivalence:
        assert await equivalence.group([*plain, *terms], "boxed") == list(range(256))
        assert asked == ["fingerprint"] * 256
        asked.clear()
        answers = [*plain[:20], *terms[:20], "y = x^2 + 9", r"\sqrt{8}"]
        assert await equivalence.group(answers, "boxed") == [*range(41), 21]
        assert asked.count("equal") == 40 + 1  # the equation with all others, √8 with 2√2


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
async def test_numbers_are_grouped_exactly(numbers: list[Fraction], random: Random) -> None:
    """Whatever the spelling of a fraction, groups are those of the values."""

    def spelling(value: Fraction) -> str:
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


# values, each with spellings of every kind of comparison
KINDS = [
    ["12", "12.0", r"\sqrt{144}", r"x = 12", r"\frac{24}{2}", r"12\text{ cm}"],
    [r"2\sqrt{2}", r"\sqrt{8}", "2^{3/2}", r"\frac{4}{\sqrt{2}}"],
    ["(x+1)^2", "x^2+2x+1", "1 + x(x+2)"],
    ["1, 2", r"\{2, 1\}", "x = 1, x = 2", "2 and 1"],
    ["(1, 2)", "x=1, y=2", r"\left(1, \frac{4}{2}\right)"],
    ["[1, 2]", r"1 \le x \le 2", r"x \in [1, 2]"],
    ["y = 2x + 1", "2x - y + 1 = 0"],
    [r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{bmatrix}1.0\\2\end{bmatrix}"],
    ["1/3", r"0.\overline{3}", "0.333..."],
    ["0.333"],
    [r"\pi", "π"],
    ["3.14159"],
    ["No solution", r"\text{no solution}"],
    ["1/2^98", r"\frac{2}{2^{99}}"],
    ["1/2^99"],
]
SPELLINGS = [(kind, spelling) for kind, spellings in enumerate(KINDS) for spelling in spellings]


@settings(deadline=None, max_examples=60)
@given(answers=st.lists(st.sampled_from(SPELLINGS), min_size=1, max_size=8))
async def test_groups_are_those_of_the_values_in_whatever_order(
    patient: Equivalence, answers: list[tuple[int, str]]
) -> None:
    """So equality is reflexive, symmetric and transitive, and groups do not depend on the order."""
    order = list(dict.fromkeys(kind for kind, _ in answers))
    assert await patient.group([spelling for _, spelling in answers], "boxed") == [
        order.index(kind) for kind, _ in answers
    ]


ANY = sorted({side for pair in (*EQUAL, *UNEQUAL) for side in pair})


@settings(deadline=None, max_examples=100)
@given(answers=st.lists(st.sampled_from(ANY), min_size=2, max_size=4, unique=True))
async def test_any_answers_are_equal_from_both_sides_and_equal_to_themselves(
    patient: Equivalence, answers: list[str]
) -> None:
    first, second, *_ = answers
    assert await patient.group([first, second], "boxed") == await patient.group([second, first], "boxed")
    groups = await patient.group([*answers, *answers], "boxed")
    assert groups[: len(answers)] == groups[len(answers) :]


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(alphabet=r"\{}()[]^_/+-*=,.$% 0123459xabtexfrcs", max_size=20), max_size=4))
async def test_nothing_that_a_model_writes_raises(answers: list[str]) -> None:
    """Normalising, exact numbers and forms take any text; equal spellings are equal answers."""
    async with Equivalence(budget=0.0) as lazy:
        groups = await lazy.group([*answers, *answers], "boxed")
    assert groups[: len(answers)] == groups[len(answers) :]
