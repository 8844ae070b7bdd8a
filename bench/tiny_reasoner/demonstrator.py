"""Fallible demonstrators: the traces that the tiny reasoner learns to imitate.

A demonstrator works a ledger thought by thought. It slips at random, falls into traps (see `ledger`), doubts
some of its steps and works them again, notices some of its errors, and goes back to earlier steps. How much
it doubts differs from trace to trace; that makes the long tail of the length distribution.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import IntEnum

from bench.tiny_reasoner.ledger import GROUPS, LABELS, MODULUS, Ledger, Operation, group_result, trap_result


class Fault(IntEnum):
    """What went wrong while a step was worked; of several faults the greatest counts."""

    NONE = 0
    SLIP = 1
    TRAP = 2


@dataclass(frozen=True, slots=True)
class Habits:
    """Probabilities. Those marked * are multiplied by the trace's anxiety, up to `most_doubt`.

    slip: per digit group. miscopy: per step, of one wrong digit in its result. fall: for a trap, when a step
    is worked first; fall_again: when it is worked again. notice_slip, notice_trap: of checking a wrong step
    at once. check*: of checking a right one. return_wrong: of going back after a step while an earlier one is
    wrong; return_right*: while none is; at_end_wrong, at_end_right*: the same after the last step. anxieties:
    pairs (share of the traces, factor).
    """

    slip: float = 0.022
    miscopy: float = 0.006
    fall: float = 0.85
    fall_again: float = 0.68
    notice_slip: float = 0.45
    notice_trap: float = 0.30
    check: float = 0.03
    return_wrong: float = 0.06
    return_right: float = 0.005
    at_end_wrong: float = 0.30
    at_end_right: float = 0.05
    most_doubt: float = 0.62
    anxieties: tuple[tuple[float, float], ...] = ((0.72, 0.6), (0.20, 3.0), (0.08, 9.0))


@dataclass(frozen=True, slots=True)
class Thought:
    """valid: the step is worked rightly from its own operand. on_path: its value is that of the true path."""

    text: str
    valid: bool
    on_path: bool


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A trace: its thoughts, in order, and the answer it ends with, right or not."""

    thoughts: tuple[Thought, ...]
    answer: int

    def text(self) -> str:
        """What the model is to generate after its prompt, end token included."""
        thoughts = "\n\n".join(thought.text for thought in self.thoughts)
        return f"{thoughts}\n\n</think>\n\nThe answer is \\boxed{{{self.answer:03d}}}.<|im_end|>"


def work(
    value: int, operation: Operation, rng: random.Random, habits: Habits, fall: float
) -> tuple[str, int, Fault]:
    """Works one operation digit by digit, with the habits' faults.

    fall: the probability of falling into each trap met. Returns the written working, its result (0..999) and
    the gravest fault.
    """
    carry, fault, written, digits = 0, Fault.NONE, [], []
    for group in range(GROUPS):
        digit, other = operation.digits(value, group)
        result = group_result(digit, other, carry, operation.sign)
        trapped = trap_result(group, digit, other, carry, operation.sign)
        if trapped is not None and rng.random() < fall:
            result, fault = trapped, Fault.TRAP
        elif rng.random() < habits.slip:
            result = min(max(result + rng.choice((1, -1, 10, -10, 1, -1)), 0), 99)
            fault = max(fault, Fault.SLIP)
        carry_sign = "-" if operation.sign == "-" else "+"
        written.append(f"{digit}{operation.sign}{other}{carry_sign}{carry}={result:02d}")
        digits.append(result % 10)
        carry = result // 10
    result = sum(digit * 10**group for group, digit in enumerate(digits))
    if rng.random() < habits.miscopy:
        place = rng.randrange(GROUPS)
        result = (result + rng.choice((1, 9)) * 10**place) % MODULUS
        fault = max(fault, Fault.SLIP)
    text = f"{value:03d}{operation.sign}{operation.operand}: {', '.join(written)}, so {result:03d}."
    return text, result, fault


def demonstrate(
    ledger: Ledger, rng: random.Random, habits: Habits | None = None, max_thoughts: int = 120
) -> Demonstration:
    """One demonstrator's trace. From `max_thoughts` thoughts on it doubts nothing any more."""
    trace = _Trace(ledger, rng, habits or Habits(), max_thoughts)
    steps = len(ledger.operations)
    step = 0
    while step < steps:
        fault = trace.write(step)
        trace.check(step, fault)
        step = trace.go_back(step) + 1
    return Demonstration(tuple(trace.thoughts), trace.values[steps])


class _Trace:
    """The state of a demonstrator: what stands on its paper, and which of it is wrong."""

    def __init__(self, ledger: Ledger, rng: random.Random, habits: Habits, max_thoughts: int) -> None:
        steps = len(ledger.operations)
        self.thoughts: list[Thought] = []
        # the value that stands before each step, and at the end; steps not yet worked hold their start value
        self.values = [ledger.start] * (steps + 1)
        self._ledger, self._truth = ledger, ledger.values()
        self._operands = [0] * steps
        self._wrong = [False] * steps
        self._rng, self._habits, self._max_thoughts = rng, habits, max_thoughts
        factors = [factor for _, factor in habits.anxieties]
        self._anxiety = rng.choices(factors, [share for share, _ in habits.anxieties])[0]

    def write(self, step: int) -> Fault:
        """Works a step from the value that stands before it."""
        self._operands[step] = self.values[step]
        text, result, fault = self._work(step, self._habits.fall)
        self._put_down(step, f"{LABELS[step]}) {text}", result)
        return fault

    def check(self, step: int, fault: Fault) -> None:
        """Works the step just written again, as often as it is doubted."""
        habits = self._habits
        while len(self.thoughts) < self._max_thoughts:
            doubt = self._doubt(habits.check)
            if self._wrong[step]:
                doubt = max(doubt, habits.notice_trap if fault is Fault.TRAP else habits.notice_slip)
            if self._rng.random() >= doubt:
                return
            fault = self._work_again(step, "Wait, let me check ")

    def go_back(self, step: int) -> int:
        """Maybe works an earlier step again, after which all later ones have to be worked anew.

        Returns the last step that stands now.
        """
        at_end = step == len(self._wrong) - 1
        errors = [earlier for earlier in range(step + 1) if self._wrong[earlier]]
        if len(self.thoughts) >= self._max_thoughts or self._rng.random() >= self._return(at_end, errors):
            return step
        if errors and self._rng.random() < 0.85:
            chosen = errors[0]
        elif at_end and self._rng.random() < 0.6:
            chosen = 0
        else:
            chosen = self._rng.randrange(step + 1)
        self._work_again(chosen, "Wait, go back to ")
        for later in range(chosen + 1, len(self._wrong)):
            self._wrong[later] = False
        return chosen

    def _return(self, at_end: bool, errors: list[int]) -> float:
        habits = self._habits
        doubt = self._doubt(habits.at_end_right if at_end else habits.return_right)
        if not errors:
            return doubt
        return max(doubt, habits.at_end_wrong if at_end else habits.return_wrong)

    def _doubt(self, probability: float) -> float:
        return min(probability * self._anxiety, self._habits.most_doubt)

    def _work_again(self, step: int, opening: str) -> Fault:
        text, result, fault = self._work(step, self._habits.fall_again)
        verdict = " OK." if result == self.values[step + 1] else " I was wrong."
        self._put_down(step, f"{opening}{LABELS[step]}) {text}{verdict}", result)
        return fault

    def _work(self, step: int, fall: float) -> tuple[str, int, Fault]:
        operation = self._ledger.operations[step]
        return work(self._operands[step], operation, self._rng, self._habits, fall)

    def _put_down(self, step: int, text: str, result: int) -> None:
        right = self._ledger.operations[step].apply(self._operands[step])
        self.values[step + 1] = result
        self._wrong[step] = result != right
        self.thoughts.append(Thought(text, result == right, result == self._truth[step]))
