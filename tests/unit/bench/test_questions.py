"""The question lists: right answers, by an evaluation that shares no code with the generator."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.tiny_reasoner.ledger import SPLITS, random_ledger
from bench.tiny_reasoner.questions import LISTS, make_lists

QUESTIONS = Path(__file__).parents[3] / "bench" / "questions"


def evaluate(question: str) -> int:
    """Reads a question as a person would: start, then each operation, modulo 1000."""
    start = re.search(r"Start with (\d+) and work modulo 1000\.", question)
    last = re.search(r"Report the value after ([a-z])\.$", question)
    entries = re.findall(r"([a-z])\) ([+*-])(\d+)", question)
    assert start
    assert last
    assert entries[-1][0] == last[1]
    assert [label for label, _, _ in entries] == [chr(ord("a") + i) for i in range(len(entries))]
    value = int(start[1])
    for _, sign, operand in entries:
        number = int(operand)
        value = {"+": value + number, "-": value - number, "*": value * number}[sign] % 1000
    return value


@given(st.integers(0, 2**32), st.integers(1, 26))
def test_the_answer_of_a_random_ledger_is_what_its_text_says(seed: int, steps: int) -> None:
    ledger = random_ledger(random.Random(seed), steps)
    assert ledger.answer() == evaluate(ledger.question())


@pytest.mark.parametrize("name", [wanted.name for wanted in LISTS])
def test_the_answers_of_a_checked_in_list_are_right(name: str) -> None:
    rows = [json.loads(line) for line in (QUESTIONS / f"{name}.jsonl").read_text().splitlines()]
    assert len(rows) in {40, 60, 200}
    assert [row["id"] for row in rows] == [f"{name}-{number:04d}" for number in range(len(rows))]
    for row in rows:
        assert row["answer"] == evaluate(row["question"])


def test_the_checked_in_lists_are_what_the_generator_makes() -> None:
    made = dict(make_lists())
    stored = {path.name: path.read_text() for path in QUESTIONS.glob("*.jsonl")}
    assert made == stored


def test_no_question_is_in_two_lists() -> None:
    questions = [
        json.loads(line)["question"]
        for path in QUESTIONS.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert len(questions) == len(set(questions)) > 1000


@pytest.mark.parametrize("name", list(SPLITS))
def test_a_split_keeps_its_bounds_on_steps_and_traps(name: str) -> None:
    split = SPLITS[name]
    rng = random.Random(name)
    ledgers = [split.draw(rng) for _ in range(50)]
    shortest, longest = split.steps
    assert {len(ledger.operations) for ledger in ledgers} == set(range(shortest, longest + 1))
    assert {ledger.traps() for ledger in ledgers} == {traps for _, traps in split.traps}
    if split.early:
        assert all(ledger.traps((len(ledger.operations) + 1) // 2) == ledger.traps() for ledger in ledgers)
