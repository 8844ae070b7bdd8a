"""Demonstrators: what they write says what they did, and without faults they are right."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bench.tiny_reasoner.demonstrator import Demonstration, Habits, demonstrate
from bench.tiny_reasoner.ledger import Ledger, Operation, random_ledger

FAULTLESS = replace(Habits(), slip=0.0, miscopy=0.0, fall=0.0, fall_again=0.0)

WORKING = re.compile(
    r"^(?:Wait, let me check |Wait, go back to )?([a-z])\) (\d{3})([+*-])(\d+): (.*), so (\d{3})\."
    r"( OK\.| I was wrong\.)?$"
)

ledgers = st.builds(
    lambda seed, steps: random_ledger(random.Random(seed), steps), st.integers(0, 2**32), st.integers(1, 14)
)


def right_result(sign: str, value: int, operand: int) -> int:
    return {"+": value + operand, "-": value - operand, "*": value * operand}[sign] % 1000


@given(ledgers, st.integers(0, 2**32))
def test_every_thought_says_whether_it_is_valid_and_on_the_true_path(ledger: Ledger, seed: int) -> None:
    truth = ledger.values()
    for thought in demonstrate(ledger, random.Random(seed)).thoughts:
        parsed = WORKING.match(thought.text)
        assert parsed, thought.text
        label, value, sign, operand, _, result, _ = parsed.groups()
        step = ord(label) - ord("a")
        assert ledger.operations[step] == Operation(sign, int(operand))  # type: ignore[arg-type]
        assert thought.valid == (int(result) == right_result(sign, int(value), int(operand)))
        assert thought.on_path == (int(result) == truth[step])


@given(ledgers, st.integers(0, 2**32))
def test_every_step_starts_from_the_value_that_stands_before_it(ledger: Ledger, seed: int) -> None:
    standing = {-1: ledger.start}
    demonstration = demonstrate(ledger, random.Random(seed))
    for thought in demonstration.thoughts:
        parsed = WORKING.match(thought.text)
        assert parsed
        label, value, _, _, _, result, verdict = parsed.groups()
        step = ord(label) - ord("a")
        if verdict is None:
            assert int(value) == standing[step - 1]
        else:
            assert (verdict == " OK.") == (int(result) == standing[step])
        standing[step] = int(result)
    assert demonstration.answer == standing[len(ledger.operations) - 1]


@given(ledgers, st.integers(0, 2**32))
def test_without_faults_every_thought_and_the_answer_are_right(ledger: Ledger, seed: int) -> None:
    demonstration = demonstrate(ledger, random.Random(seed), FAULTLESS)
    assert all(thought.valid and thought.on_path for thought in demonstration.thoughts)
    assert demonstration.answer == ledger.answer()
    assert demonstration.text().endswith(
        f"</think>\n\nThe answer is \\boxed{{{ledger.answer():03d}}}.<|im_end|>"
    )


def test_a_group_is_worked_with_its_carry() -> None:
    ledger = Ledger(871, (Operation("+", 723), Operation("-", 606), Operation("*", 7)))
    plain = replace(FAULTLESS, check=0.0, return_right=0.0, at_end_right=0.0)
    assert [t.text for t in demonstrate(ledger, random.Random(0), plain).thoughts] == [
        "a) 871+723: 1+3+0=04, 7+2+0=09, 8+7+0=15, so 594.",
        "b) 594-606: 4-6-0=18, 9-0-1=08, 5-6-0=19, so 988.",
        "c) 988*7: 8*7+0=56, 8*7+5=61, 9*7+6=69, so 916.",
    ]


def test_a_trap_misleads_the_same_way_every_time() -> None:
    # 85 + 123: the carry of 5 + 8 is to ripple through 9 + 0, and is forgotten
    ledger = Ledger(195, (Operation("+", 108),))
    assert ledger.traps() == 1
    fallen = replace(FAULTLESS, fall=1.0, notice_trap=0.0, at_end_wrong=0.0, check=0.0, at_end_right=0.0)
    answers = {demonstrate(ledger, random.Random(seed), fallen).answer for seed in range(20)}
    assert answers == {293}


def test_doubt_ends_at_the_most_thoughts() -> None:
    restless = replace(Habits(), check=1.0, return_right=1.0, at_end_right=1.0, most_doubt=1.0)
    ledger = random_ledger(random.Random(1), 5)
    demonstration = demonstrate(ledger, random.Random(1), restless, max_thoughts=30)
    assert 30 <= len(demonstration.thoughts) <= 35


def test_anxiety_makes_a_long_tail() -> None:
    rng = random.Random(3)
    demonstrations: list[Demonstration] = [demonstrate(random_ledger(rng, 8), rng) for _ in range(600)]
    lengths = sorted(len(d.thoughts) for d in demonstrations)
    median, high = lengths[300], lengths[594]
    assert 8 <= median <= 11
    assert high > 2.5 * median
