"""Muon: momentum whose updates are made orthogonal, for weight matrices (Jordan et al., 2024)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

# the quintic Newton-Schulz iteration that drives all singular values towards one
_COEFFICIENTS = (3.4445, -4.775, 2.0315)
_ITERATIONS = 5


def orthogonalise(updates: Tensor) -> Tensor:
    """Nearly orthogonal matrices with the singular vectors of `updates`, [N, rows, columns]."""
    tall = updates.shape[1] > updates.shape[2]
    x: Tensor = updates.mT if tall else updates
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """lr: size of an update in spectral norm. momentum: Nesterov. decay: decoupled weight decay."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.01
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update. Matrices of one shape are orthogonalised together."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    by_shape[weight.shape].append((weight, self._momentum(weight, group["momentum"])))
            for shape, pairs in by_shape.items():
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                updates = orthogonalise(torch.stack([update for _, update in pairs]))
                for (weight, _), update in zip(pairs, updates, strict=True):
                    weight.mul_(1 - group["lr"] * group["decay"]).add_(update, alpha=-group["lr"] * scale)

    def _momentum(self, weight: nn.Parameter, momentum: float) -> Tensor:
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["average"] = torch.zeros_like(weight)
        average: Tensor = state["average"]
        average.lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(average, momentum)
