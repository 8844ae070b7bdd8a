"""The step scorer of STEP (arXiv 2601.09093): a two-layer MLP on the boundary token's hidden state.

Linear(D, H) → ReLU → Linear(H, 1) → sigmoid, with H = 512 in the paper. Each thought is scored by itself; the
score of a trace is the mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from prm_worker.scorers.base import Float32Array, digest
from prm_worker.scorers.calibration import calibrated

# Names in the public checkpoints, with the shape of each; D: hidden size of the model, H: of the scorer.
LAYOUT = {
    "net.0.weight": "[H, D]",
    "net.0.bias": "[H]",
    "net.2.weight": "[1, H]",
    "net.2.bias": "[1]",
}


class MlpScorer:
    """Made from weights in the public STEP layout.

    weights: the four tensors of LAYOUT, any floating-point dtype; computed in float32. device: `cpu`, `cuda`…
    calibration: as in a scorer file, checked. Raises ValueError naming the tensor that is missing, of another
    shape, or not finite.
    """

    kind = "mlp"

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        device: str = "cpu",
        calibration: Mapping[str, Any] | None = None,
    ) -> None:
        width, self.hidden_size = check_layout(weights)
        self._calibration = calibration or {}
        self.scorer_id = digest(self.kind, {name: weights[name] for name in LAYOUT}, self._calibration)
        self._device = torch.device(device)
        net = nn.Sequential(nn.Linear(self.hidden_size, width), nn.ReLU(), nn.Linear(width, 1))
        net.load_state_dict({name.removeprefix("net."): weights[name].float() for name in LAYOUT})
        self._net = net.to(self._device).eval()

    @torch.inference_mode()
    def score(self, rows: Float32Array) -> Float32Array:
        """Scores of rows; see Scorer."""
        logits: Tensor = self._net(torch.from_numpy(rows).to(self._device)).squeeze(1)
        return calibrated(logits, self._calibration)


def check_layout(weights: Mapping[str, Tensor]) -> tuple[int, int]:
    """Sizes (H, D) of weights in the STEP layout. Raises ValueError naming the tensor that does not fit."""
    for name, shape in LAYOUT.items():
        if name not in weights:
            raise ValueError(
                f"{name} {shape} is missing (found: {', '.join(sorted(weights)) or 'no tensor'})"
            )
        tensor = weights[name]
        if not tensor.is_floating_point():
            raise ValueError(f"{name} is {tensor.dtype}; it must hold floating-point values")
        if not torch.isfinite(tensor).all():
            raise ValueError(f"{name} holds values that are not finite")
    first = weights["net.0.weight"]
    if first.dim() != 2 or 0 in first.shape:
        raise ValueError(f"net.0.weight has shape {list(first.shape)}; it must be {LAYOUT['net.0.weight']}")
    width, hidden_size = first.shape
    expected = {"net.0.bias": [width], "net.2.weight": [1, width], "net.2.bias": [1]}
    for name, sizes in expected.items():
        if list(weights[name].shape) != sizes:
            raise ValueError(
                f"{name} has shape {list(weights[name].shape)}; beside net.0.weight [{width}, {hidden_size}] "
                f"it must be {sizes}"
            )
    return width, hidden_size
