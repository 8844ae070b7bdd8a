"""One training step, and what changes in the course of a training."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

from bench.tiny_reasoner.data import Batch, batches
from bench.tiny_reasoner.model import TinyReasoner
from bench.tiny_reasoner.muon import Muon
from bench.tiny_reasoner.tokenizer import BLANK_LINE


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How to train.

    minutes: wall time, the first batch to the last. batch_tokens: per process. max_length: longer traces are
    cut there. most_steps: the longest question. curriculum: share of the time spent on questions of at most 4
    steps; twice that share follows on at most 8. muon_rate, adam_rate: learning rates of the matrices inside
    the layers, and of everything else. value_weight: weight of the auxiliary loss that predicts at each
    boundary whether the thought is valid and on the true path (its head is not exported). boundary_weight:
    weight of the token after a boundary, where the trace decides how to go on. processes: data parallel, one
    thread each.
    """

    minutes: float
    seed: int = 0
    batch_tokens: int = 3072
    max_length: int = 1280
    most_steps: int = 14
    curriculum: float = 0.12
    muon_rate: float = 0.02
    adam_rate: float = 0.004
    value_weight: float = 0.1
    boundary_weight: float = 3.0
    processes: int = 2


@dataclass(frozen=True, slots=True)
class Losses:
    """tokens: weighted cross-entropy in nats. values: binary cross-entropy of the auxiliary head."""

    tokens: float
    values: float


def most_steps(config: TrainingConfig, progress: float) -> int:
    """The longest question at `progress`, the share of the training that is over."""
    if progress < config.curriculum:
        return min(4, config.most_steps)
    return min(8, config.most_steps) if progress < 3 * config.curriculum else config.most_steps


def rate_scale(step: int, progress: float) -> float:
    """Factor of the learning rates: 60 steps of warm-up, constant to the middle, then falling to 3 %."""
    decay = 1.0 if progress < 0.5 else max(0.03, 1 - (progress - 0.5) / 0.5 * 0.97)
    return min(1.0, (step + 1) / 60) * decay


class Trainer:
    """A model in training. `rank`: which of the config's processes this is; they share gradients."""

    def __init__(self, model: TinyReasoner, config: TrainingConfig, rank: int = 0) -> None:
        self.model = model
        self.steps = 0
        self._config = config
        self._value_head = nn.Linear(model.shape.hidden, 2)
        matrices = model.matrices()
        inside = {id(weight) for weight in matrices}
        others = [p for p in model.parameters() if id(p) not in inside]
        others += self._value_head.parameters()
        self._parameters = [*matrices, *others]
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (Muon(matrices, lr=config.muon_rate), config.muon_rate),
            (
                torch.optim.AdamW(others, lr=config.adam_rate, betas=(0.9, 0.97), weight_decay=0.0),
                config.adam_rate,
            ),
        ]
        self._rng = random.Random(1000 * config.seed + 17 + rank)
        self._batches: Iterator[Batch] = iter(())

    def step(self, progress: float) -> Losses:
        """Trains on one fresh batch. progress: in 0..1."""
        scale = rate_scale(self.steps, progress)
        for optimizer, rate in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * scale
        tokens, values = self._losses(self._next_batch(progress))
        (tokens + self._config.value_weight * values).backward()  # type: ignore[no-untyped-call]
        if self._config.processes > 1:
            self._average_gradients()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0 if self.steps <= 20 else 1.0)
        for optimizer, _ in self._optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.steps += 1
        return Losses(tokens.item(), values.item())

    def _next_batch(self, progress: float) -> Batch:
        batch = next(self._batches, None)
        if batch is None:
            config = self._config
            self._batches = batches(
                self._rng, most_steps(config, progress), config.batch_tokens, config.max_length
            )
            batch = next(self._batches)
        return batch

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor]:
        inputs, targets = batch.ids[:, :-1], batch.ids[:, 1:]
        hidden = self.model(inputs)
        logits = self.model.logits(hidden)
        each = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        weights = batch.generated[:, 1:] * torch.where(
            inputs == BLANK_LINE, self._config.boundary_weight, 1.0
        )
        tokens = (each * weights).sum() / weights.sum()

        at_boundaries = batch.boundaries[:, :-1]
        predicted = self._value_head(hidden[at_boundaries])
        wanted = batch.values[:, :-1][at_boundaries]
        # a batch of very short, cut traces can have no boundary: then the mean over nothing is zero
        values = functional.binary_cross_entropy_with_logits(predicted, wanted, reduction="sum")
        return tokens, values / max(1, predicted.numel())

    def _average_gradients(self) -> None:
        gradients = [p.grad for p in self._parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self._config.processes
        averages = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, average in zip(gradients, averages, strict=True):
            gradient.copy_(average.view_as(gradient))
