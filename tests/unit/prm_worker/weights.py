"""Scorer weights made on the spot."""

from __future__ import annotations

import torch
from torch import Tensor

from prm_worker.scorers.incremental import SequenceScorer
from prm_worker.scorers.sequence import SequenceNet


def step_weights(hidden_size: int, width: int = 512, seed: int = 0) -> dict[str, Tensor]:
    """Random weights in the public STEP layout."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float) -> Tensor:
        return torch.randn(*shape, generator=generator) * scale

    return {
        "net.0.weight": normal(width, hidden_size, scale=hidden_size**-0.5),
        "net.0.bias": normal(width, scale=0.1),
        "net.2.weight": normal(1, width, scale=width**-0.5),
        "net.2.bias": normal(1, scale=0.1),
    }


def direct_scores(weights: dict[str, Tensor], rows: Tensor) -> list[float]:
    """The scorer of the paper written out, in double precision, row by row."""
    w = {name: tensor.double() for name, tensor in weights.items()}
    scores = []
    for row in rows.double():
        inner = torch.clamp(w["net.0.weight"] @ row + w["net.0.bias"], min=0)
        scores.append(torch.sigmoid(w["net.2.weight"] @ inner + w["net.2.bias"]).item())
    return scores


def sequence_weights(
    hidden_size: int, width: int = 256, layers: int = 1, heads: int = 4, seed: int = 0
) -> dict[str, Tensor]:
    """Random weights of a SequenceNet, larger than its first ones, so that each thought really counts."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = SequenceNet(hidden_size, width, layers, heads)
        with torch.no_grad():
            for name, tensor in net.named_parameters():
                if name.endswith("weight") and tensor.dim() == 2:
                    tensor.normal_(std=1.5 * tensor.shape[1] ** -0.5)
    return net.state_dict()


def sequence_scorer(
    hidden_size: int, width: int = 256, layers: int = 1, thoughts: int = 4096, cache_dtype: str = "float16"
) -> SequenceScorer:
    """A sequence scorer with random weights and a cache for so many thoughts."""
    cache_bytes = thoughts * layers * 2 * width * (2 if cache_dtype == "float16" else 4)
    weights = sequence_weights(hidden_size, width, layers)
    return SequenceScorer(weights, cache_bytes=cache_bytes, cache_dtype=cache_dtype)
