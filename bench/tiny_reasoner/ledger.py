"""The ledger: a start value and a labelled list of operations modulo 1000, worked digit by digit.

Every operation is worked in three digit groups, units first. A group's two-digit result is the digit to write
and the carry (or borrow) into the next group. Some groups are *traps*: places where a learner's classic
misconception gives a definite wrong result, so that many independent traces err alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Sign = Literal["+", "-", "*"]

LABELS = "abcdefghijklmnopqrstuvwxyz"
MODULUS = 1000
GROUPS = 3
FACTORS = (2, 3, 4, 6, 7, 8, 9)


@dataclass(frozen=True, slots=True)
class Operation:
    """One entry: `+` or `-` with an operand of 100..999, or `*` with a digit of FACTORS."""

    sign: Sign
    operand: int

    def apply(self, value: int) -> int:
        """The true value after this operation, in 0..999."""
        if self.sign == "+":
            return (value + self.operand) % MODULUS
        if self.sign == "-":
            return (value - self.operand) % MODULUS
        return value * self.operand % MODULUS

    def digits(self, value: int, group: int) -> tuple[int, int]:
        """The two digits that meet in a group (0: units): of `value`, and of the operand (a factor whole)."""
        divisor = 10**group
        other = self.operand if self.sign == "*" else self.operand // divisor % 10
        return value // divisor % 10, other


def group_result(digit: int, other: int, carry: int, sign: Sign) -> int:
    """The true two-digit result of a group: ten times the carry (or borrow) out plus the digit to write."""
    if sign == "+":
        return digit + other + carry
    if sign == "*":
        return digit * other + carry
    difference = digit - other - carry
    return difference if difference >= 0 else 10 + (difference + 10)


def trap_result(group: int, digit: int, other: int, carry: int, sign: Sign) -> int | None:
    """The wrong result that the classic misconception writes in this group; None when it is no trap."""
    if group == 0 or carry == 0:
        return None
    if sign == "+" and digit + other == 9:
        return 9  # the carry that ripples through a nine is forgotten
    if sign == "-" and digit == 0 and group == 1:
        return (10 - other - carry) % 10  # a borrow across zero is not passed on
    if sign == "*" and digit == 0:
        return 0  # zero times something is zero, whatever was carried
    return None


def count_traps(value: int, operation: Operation) -> int:
    """How many groups of one operation are traps when it is worked without error."""
    traps = carry = 0
    for group in range(GROUPS):
        digit, other = operation.digits(value, group)
        traps += trap_result(group, digit, other, carry, operation.sign) is not None
        carry = group_result(digit, other, carry, operation.sign) // 10
    return traps


@dataclass(frozen=True, slots=True)
class Ledger:
    """A question: the start value (100..999) and 1..26 operations."""

    start: int
    operations: tuple[Operation, ...]

    def values(self) -> list[int]:
        """The true value after each operation."""
        values, value = [], self.start
        for operation in self.operations:
            value = operation.apply(value)
            values.append(value)
        return values

    def answer(self) -> int:
        """The value asked for."""
        return self.values()[-1]

    def traps(self, steps: int | None = None) -> int:
        """How many traps lie on the true path, within the first `steps` operations if given."""
        operands = [self.start, *self.values()]
        return sum(count_traps(v, o) for v, o in zip(operands, self.operations[:steps], strict=False))

    def question(self) -> str:
        """The text that a model is asked."""
        entries = " ".join(f"{LABELS[i]}) {o.sign}{o.operand}" for i, o in enumerate(self.operations))
        last = LABELS[len(self.operations) - 1]
        return f"Start with {self.start} and work modulo {MODULUS}. {entries}. Report the value after {last}."


def random_ledger(rng: random.Random, steps: int, multiplications: float = 0.34) -> Ledger:
    """A ledger of `steps` operations, of which this share multiplies; the rest adds or subtracts alike."""
    start = rng.randrange(100, MODULUS)
    operations = []
    for _ in range(steps):
        draw = rng.random()
        if draw < multiplications:
            operations.append(Operation("*", rng.choice(FACTORS)))
        else:
            sign: Sign = "+" if draw < multiplications + (1 - multiplications) / 2 else "-"
            operations.append(Operation(sign, rng.randrange(100, MODULUS)))
    return Ledger(start, tuple(operations))


@dataclass(frozen=True, slots=True)
class Split:
    """A kind of question: the number of steps (inclusive), and the traps on the true path.

    traps: pairs (share of the questions, number of traps). early: all traps lie in the first half of the
    steps, so that a prefix from the middle of a trace can have passed them.
    """

    name: str
    steps: tuple[int, int]
    traps: Sequence[tuple[float, int]]
    early: bool = False

    def draw(self, rng: random.Random) -> Ledger:
        """A random question of this split."""
        traps = self._draw_traps(rng)
        while True:
            ledger = random_ledger(rng, rng.randint(*self.steps))
            half = (len(ledger.operations) + 1) // 2
            if ledger.traps() == traps and (not self.early or ledger.traps(half) == traps):
                return ledger

    def _draw_traps(self, rng: random.Random) -> int:
        if len(self.traps) == 1:
            return self.traps[0][1]
        draw = rng.random()
        for share, traps in self.traps[:-1]:
            if draw < share:
                return traps
            draw -= share
        return self.traps[-1][1]


SPLITS = {
    split.name: split
    for split in (
        Split("easy", (4, 6), [(1.0, 0)]),
        Split("medium", (7, 11), [(0.25, 1), (0.75, 0)]),
        Split("hard", (8, 13), [(1.0, 2)]),
        Split("hard2", (8, 12), [(1.0, 2)], early=True),
    )
}
