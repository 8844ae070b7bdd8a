"""Makes the lists of `bench/questions`: `python -m bench.tiny_reasoner.questions --out bench/questions`.

Three kinds of list: `test_*` (60 each) for the comparison of policies, `scorer_train_*` and `scorer_valid_*`
for the training of scorers. No question is in two lists. The lists follow from the seeds below: a second run
writes the same files. `--split hard --count 100 --seed 7` prints a fresh list instead.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.tiny_reasoner.ledger import SPLITS, Split


@dataclass(frozen=True, slots=True)
class Question:
    """One line of a list. answer: 0..999. traps: see `ledger`."""

    id: str
    split: str
    question: str
    answer: int
    steps: int
    traps: int


@dataclass(frozen=True, slots=True)
class QuestionList:
    """A list to make: its name, its split, how many questions, the seed."""

    name: str
    split: str
    count: int
    seed: int


# in the order in which they are made: a question that an earlier list has is drawn again
LISTS = tuple(
    question_list
    for number, split in enumerate(SPLITS, start=1)
    for question_list in (
        QuestionList(f"test_{split}", split, 60, 9000 + number),
        QuestionList(f"scorer_train_{split}", split, 60 if split == "easy" else 200, 7000 + number),
        QuestionList(f"scorer_valid_{split}", split, 40, 8000 + number),
    )
)


def draw_questions(name: str, split: Split, count: int, seed: int, taken: set[str]) -> Iterator[Question]:
    """Draws `count` questions that are not in `taken`, and adds them to it."""
    rng = random.Random(seed)
    number = 0
    while number < count:
        ledger = split.draw(rng)
        text = ledger.question()
        if text in taken:
            continue
        taken.add(text)
        yield Question(
            id=f"{name}-{number:04d}",
            split=split.name,
            question=text,
            answer=ledger.answer(),
            steps=len(ledger.operations),
            traps=ledger.traps(),
        )
        number += 1


def as_lines(questions: Iterator[Question]) -> str:
    """The questions as JSON lines."""
    return "".join(json.dumps(asdict(question)) + "\n" for question in questions)


def make_lists() -> Iterator[tuple[str, str]]:
    """Every list of `LISTS`: its file name and its text."""
    taken: set[str] = set()
    for wanted in LISTS:
        questions = draw_questions(wanted.name, SPLITS[wanted.split], wanted.count, wanted.seed, taken)
        yield f"{wanted.name}.jsonl", as_lines(questions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="the folder for all lists")
    parser.add_argument("--split", choices=list(SPLITS), help="print one fresh list of this split")
    parser.add_argument("--count", type=int, default=60, help="length of the fresh list (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the fresh list (default 0)")
    options = parser.parse_args()
    if (options.out is None) == (options.split is None):
        parser.error("name either --out or --split")
    if options.split:
        name = f"{options.split}_{options.seed}"
        questions = draw_questions(name, SPLITS[options.split], options.count, options.seed, set())
        print(as_lines(questions), end="")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for file_name, text in make_lists():
        (options.out / file_name).write_text(text)
        print(f"{options.out / file_name}: {text.count(chr(10))} questions")


if __name__ == "__main__":
    main()
