"""Training batches of fresh demonstrations, made while the model trains: no example comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bench.tiny_reasoner.demonstrator import Thought, demonstrate
from bench.tiny_reasoner.ledger import Ledger, random_ledger
from bench.tiny_reasoner.tokenizer import BLANK_LINE, PAD, encode, prompt

_TRAP_TRIES = 8
_TRAP_SHARE = 0.35
_LENGTH_STEP = 32


@dataclass(frozen=True, slots=True)
class Example:
    """One trace: the ids of prompt and demonstration, the prompt's length, and the thoughts."""

    ids: list[int]
    prompt_length: int
    thoughts: tuple[Thought, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """Padded examples.

    ids: [B, T] int64. generated: [B, T] bool, the tokens to be learned. boundaries: [B, T] bool, the blank
    lines. values: [B, T, 2] float32, whether the thought that a boundary ends is valid and on the true path.
    """

    ids: Tensor
    generated: Tensor
    boundaries: Tensor
    values: Tensor


def draw_ledger(rng: random.Random, most_steps: int) -> Ledger:
    """A question for training, of at most `most_steps` steps; longer ones with more traps than by chance."""
    if most_steps <= 4:
        return random_ledger(rng, rng.randint(1, most_steps))
    steps = rng.randint(2, most_steps)
    ledger = random_ledger(rng, steps)
    if rng.random() < _TRAP_SHARE:
        for _ in range(_TRAP_TRIES):
            if ledger.traps():
                break
            ledger = random_ledger(rng, steps)
    return ledger


def draw_example(rng: random.Random, most_steps: int, max_length: int) -> Example:
    """A question and a demonstrator's trace of it, cut at `max_length` tokens."""
    ledger = draw_ledger(rng, most_steps)
    asked = encode(prompt(ledger.question()))
    demonstration = demonstrate(ledger, rng)
    ids = asked + encode(demonstration.text())
    return Example(ids[:max_length], len(asked), demonstration.thoughts)


def collate(examples: Sequence[Example]) -> Batch:
    """Pads examples to one length."""
    longest = max(len(example.ids) for example in examples)
    length = -(-longest // _LENGTH_STEP) * _LENGTH_STEP
    ids = torch.full((len(examples), length), PAD, dtype=torch.int64)
    values = torch.zeros(len(examples), length, 2)
    positions = torch.arange(length)
    generated = torch.zeros(len(examples), length, dtype=torch.bool)
    for row, example in enumerate(examples):
        ids[row, : len(example.ids)] = torch.tensor(example.ids)
        generated[row] = (positions >= example.prompt_length) & (positions < len(example.ids))
        for number, position in enumerate((ids[row] == BLANK_LINE).nonzero().flatten().tolist()):
            # the blank line after </think> stands for the last thought too
            thought = example.thoughts[min(number, len(example.thoughts) - 1)]
            values[row, position] = torch.tensor([float(thought.valid), float(thought.on_path)])
    return Batch(ids, generated, ids == BLANK_LINE, values)


def batches(
    rng: random.Random, most_steps: int, batch_tokens: int, max_length: int, examples: int = 240
) -> Iterator[Batch]:
    """Batches of about `batch_tokens` tokens, of examples alike in length, out of `examples` fresh ones."""
    drawn = sorted(
        (draw_example(rng, most_steps, max_length) for _ in range(examples)), key=lambda e: len(e.ids)
    )
    groups: list[list[Example]] = [[]]
    for example in drawn:
        if groups[-1] and (len(groups[-1]) + 1) * len(example.ids) > batch_tokens:
            groups.append([])
        groups[-1].append(example)
    rng.shuffle(groups)
    for group in groups:
        yield collate(group)
