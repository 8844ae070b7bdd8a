"""Training: from labelled traces to weights, the same ones for the same seed on the same machine.

The label of a trace, and of each of its prefixes, is whether its own final answer is right.

`mlp`: each thought by itself, as in STEP (arXiv 2601.09093); the thoughts of a trace share a weight of 1, so
that a long trace counts no more than a short one.

`sequence`: binary cross-entropy on the last thought only, as its definition says, of a prefix whose length is
drawn anew, uniformly, each time the trace comes up. With whole traces alone the last thought would always be
the answer's, and a search asks at every depth; the causal network makes the last thought of a prefix what a
search sees there. A sum over all thoughts at once has the same expectation, but its terms share one pass and
pull the network towards the many thoughts of long traces; a drawn prefix gives each trace one vote per epoch,
and costs half a pass. (Process labels from outcomes by prefix: Math-Shepherd, arXiv 2312.08935.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from prm_worker.training.networks import MlpNetwork, Network, SequenceNetwork
from thoughtbeam.runtime.scorer_dataset_reader import Array, Traces

_PER_BATCH = {"mlp": (32, 1024), "sequence": (8, 64)}  # least and most thoughts; traces
_BATCHES = 16  # of an epoch, at least, where there is little data
# A low one, and what weights decay to, keep a small set of traces from being learned by heart: on the bundled
# model ten times the rate ranks unseen questions worse (0.74 against 0.77 of the pairs at the end).
RATE = 1e-4
_DECAY = 0.1
_SORTED_BATCHES = 16  # whose traces are sorted by length together
_WARM_UP = 0.05  # of all batches


@dataclass(frozen=True, slots=True)
class FitConfig:
    """rate: learning rate at its highest; 0: RATE. epochs: the most. patience: epochs
    without a lower loss on the stopping questions after which it ends; the weights of the best epoch are
    kept."""

    rate: float = 0.0
    epochs: int = 40
    patience: int = 8
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Fitted:
    """epochs: trained. best: the epoch whose weights these are, from 1. loss: on the stopping questions then;
    start_loss: before the first epoch."""

    epochs: int
    best: int
    loss: float
    start_loss: float


def class_weights(right: Array) -> tuple[float, float]:
    """Weights of a wrong and of a right trace, with which both classes weigh the same and the mean is 1."""
    share = float(np.mean(right))
    return 0.5 / (1 - share), 0.5 / share


def fit(
    network: Network,
    traces: Traces,
    train: Array,
    stop: Array,
    config: FitConfig,
    report: Callable[[str], None],
) -> Fitted:
    """Trains the network in place. report: called with a line after each epoch."""
    random = np.random.default_rng(config.seed)
    weights = class_weights(traces.right[train])
    optimizer = torch.optim.AdamW(network.module.parameters(), lr=config.rate or RATE, weight_decay=_DECAY)
    units = len(train) if network.kind == "sequence" else sum(len(traces.paths[trace]) for trace in train)
    least, most = _PER_BATCH[network.kind]
    size = min(most, max(least, units // _BATCHES))
    total = config.epochs * -(-units // size)
    warm_up = max(1.0, _WARM_UP * total)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm_up, max(0.0, 1 - step / total))
    )
    best_loss = start_loss = loss_of(network, traces, stop, weights)
    best, kept, epoch = 0, copy.deepcopy(network.module.state_dict()), 0
    for epoch in range(1, config.epochs + 1):
        network.module.train()
        for loss in _losses(network, traces, train, weights, random, size):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.module.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        current = loss_of(network, traces, stop, weights)
        report(f"epoch {epoch}: loss {current:.4f} on the stopping questions")
        if current < best_loss:
            best_loss, best, kept = current, epoch, copy.deepcopy(network.module.state_dict())
        elif epoch - best >= config.patience:
            break
    network.module.load_state_dict(kept)
    network.module.eval()
    return Fitted(epoch, best, best_loss, start_loss)


def loss_of(network: Network, traces: Traces, which: Array, weights: tuple[float, float]) -> float:
    """Mean over traces of the mean binary cross-entropy of their thoughts, weighted by class."""
    network.module.eval()
    total = weight_total = 0.0
    for trace, logits in zip(which, network.logits(traces, which), strict=True):
        right = bool(traces.right[trace])
        weight = weights[right]
        # ln(1 + e^x) without an overflow
        total += weight * float(np.logaddexp(0.0, -logits if right else logits).mean(dtype=np.float64))
        weight_total += weight
    return total / weight_total


def _losses(
    network: Network,
    traces: Traces,
    train: Array,
    weights: tuple[float, float],
    random: np.random.Generator,
    size: int,
) -> Iterator[Tensor]:
    """The losses of one epoch's batches."""
    if isinstance(network, MlpNetwork):
        return _mlp_losses(network, traces, train, weights, random, size)
    assert isinstance(network, SequenceNetwork)
    return _sequence_losses(network, traces, train, weights, random, size)


def _mlp_losses(
    network: MlpNetwork,
    traces: Traces,
    train: Array,
    weights: tuple[float, float],
    random: np.random.Generator,
    size: int,
) -> Iterator[Tensor]:
    lengths = np.array([len(traces.paths[trace]) for trace in train])
    rows = np.concatenate([traces.paths[trace] for trace in train])
    right = np.repeat(traces.right[train], lengths)
    weight = np.repeat(np.where(traces.right[train], weights[1], weights[0]) / lengths, lengths)
    weight *= len(weight) / weight.sum()  # a batch's mean is then about a mean over traces
    order = random.permutation(len(rows))
    device = next(network.module.parameters()).device
    for start in range(0, len(order), size):
        batch = order[start : start + size]
        yield binary_cross_entropy_with_logits(
            network.of_rows(torch.from_numpy(traces.values(rows[batch])).to(device)),
            torch.from_numpy(right[batch].astype(np.float32)).to(device),
            torch.from_numpy(weight[batch].astype(np.float32)).to(device),
        )


def _sequence_losses(
    network: SequenceNetwork,
    traces: Traces,
    train: Array,
    weights: tuple[float, float],
    random: np.random.Generator,
    size: int,
) -> Iterator[Tensor]:
    order = random.permutation(train)
    lengths = {int(trace): int(random.integers(1, len(traces.paths[trace]) + 1)) for trace in order}
    device = next(network.module.parameters()).device
    for batch in _of_like_length(order, lengths, size, random):
        ends = torch.tensor([lengths[trace] - 1 for trace in batch], device=device)
        logits = network.batch(traces, batch, [lengths[trace] for trace in batch])
        right = traces.right[batch]
        yield binary_cross_entropy_with_logits(
            logits.gather(1, ends.unsqueeze(1)).squeeze(1),
            torch.from_numpy(right.astype(np.float32)).to(device),
            torch.from_numpy(np.where(right, weights[1], weights[0]).astype(np.float32)).to(device),
        )


def _of_like_length(
    order: Array, lengths: Mapping[int, int], size: int, random: np.random.Generator
) -> Iterator[list[int]]:
    """Batches of traces with prefixes of similar lengths, in random order: with any length beside any other,
    most of a batch would be padding. order: traces in random order, of which a few batches at a time are
    sorted."""
    for start in range(0, len(order), size * _SORTED_BATCHES):
        part = [int(trace) for trace in order[start : start + size * _SORTED_BATCHES]]
        part.sort(key=lengths.__getitem__)
        batches = [part[place : place + size] for place in range(0, len(part), size)]
        for index in random.permutation(len(batches)):
            yield batches[index]
