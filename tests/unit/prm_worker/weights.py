"""Scorer weights made on the spot."""

from __future__ import annotations

import torch
from torch import Tensor


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
