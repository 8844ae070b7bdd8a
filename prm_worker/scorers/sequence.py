"""The history-aware scorer's network: a small causal transformer over the boundary rows of one trace.

h̃_t = GELU(W_in LN(h_t)), z = causal transformer(h̃_1..t), ŷ_t = σ(w_outᵀ LN(z_t)): pre-norm, rotary
positions (base 10,000) over the index of the thought, SwiGLU of four times the width. This is what is
trained, and the reference for what the prm worker computes thought by thought from the same parts. Both see
the projected rows as a history keeps them: in float16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

ROPE_BASE = 10_000.0
SWIGLU_FACTOR = 4


class Block(nn.Module):
    """One layer: x + attention(LN(x)), then + SwiGLU(LN(·)). Rows are float32 [..., width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.w_q = nn.Linear(width, width, bias=False)
        self.w_k = nn.Linear(width, width, bias=False)
        self.w_v = nn.Linear(width, width, bias=False)
        self.w_o = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.LayerNorm(width)
        self.w_gate = nn.Linear(width, SWIGLU_FACTOR * width, bias=False)
        self.w_up = nn.Linear(width, SWIGLU_FACTOR * width, bias=False)
        self.w_down = nn.Linear(SWIGLU_FACTOR * width, width, bias=False)

    def keys_values(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """What later thoughts look at, keys (rotated) and values, each [..., heads, width / heads], of rows
        [..., width] at positions [...]."""
        normed = self.norm_attention(x)
        return rotate(self._split(self.w_k(normed)), positions), self._split(self.w_v(normed))

    def queries(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotated queries, [..., heads, width / heads]."""
        return rotate(self._split(self.w_q(self.norm_attention(x))), positions)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, from its input x [..., width] and what attention gave its queries."""
        x = x + cast(Tensor, self.w_o(attended.flatten(-2)))
        normed = self.norm_mlp(x)
        return x + cast(Tensor, self.w_down(functional.silu(self.w_gate(normed)) * self.w_up(normed)))

    def forward(self, x: Tensor) -> Tensor:
        """Full computation, rows [B, T, width]: row t sees rows 0 to t."""
        positions = torch.arange(x.shape[1], device=x.device)
        keys, values = self.keys_values(x, positions)
        attended = functional.scaled_dot_product_attention(
            self.queries(x, positions).transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            is_causal=True,
        )
        return self.finish(x, attended.transpose(1, 2))

    def _split(self, x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:-1], self.heads, -1)


class SequenceNet(nn.Module):
    """Rows of whole traces in, one logit per thought out.

    hidden_size: of the model that makes the rows. width: of the projected rows; must be a multiple of
    2 · heads. Raises ValueError when it is not.
    """

    heads: Tensor

    def __init__(self, hidden_size: int, width: int = 256, layers: int = 1, heads: int = 4) -> None:
        super().__init__()
        if min(hidden_size, width, layers, heads) < 1 or width % (2 * heads):
            raise ValueError(
                f"hidden_size {hidden_size}, width {width}, layers {layers} and heads {heads} must be at "
                "least 1, and width a multiple of 2 * heads"
            )
        self.hidden_size = hidden_size
        self.width = width
        self.norm_in = nn.LayerNorm(hidden_size)
        self.w_in = nn.Linear(hidden_size, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm_out = nn.LayerNorm(width)
        self.w_out = nn.Linear(width, 1)
        # the one size that no other tensor's shape tells
        self.register_buffer("heads", torch.tensor(heads))

    def forward(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Full computation: logits [B, T] of padded rows [B, T, hidden size] of B traces with lengths [B]; 0
        from each trace's length on."""
        positions = torch.arange(rows.shape[1], device=rows.device)
        return self.logits(self.project(rows)).masked_fill(positions >= lengths.unsqueeze(1), 0.0)

    def project(self, rows: Tensor) -> Tensor:
        """h̃ of rows [..., hidden size], float32 [..., width] with values that float16 holds exactly.

        Outside training it is computed in float64: a sum that ends close to the middle between two float16
        values would otherwise be rounded one way or the other with the number of rows beside it.
        """
        if self.training:
            projected = functional.gelu(self.w_in(self.norm_in(rows)))
        else:
            normed = functional.layer_norm(
                rows.double(),
                (self.hidden_size,),
                self.norm_in.weight.double(),
                self.norm_in.bias.double(),
                self.norm_in.eps,
            )
            weight, bias = self.w_in.weight.double(), self.w_in.bias.double()
            projected = functional.gelu(functional.linear(normed, weight, bias))
        rounded = projected.detach().half().float()
        # the gradient goes past the rounding
        return rounded + (projected - projected.detach()) if self.training else rounded

    def logits(self, projected: Tensor) -> Tensor:
        """Full computation from projected rows: [B, T, width] to [B, T]."""
        x = projected
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def head(self, z: Tensor) -> Tensor:
        """Logits [...] of the last layer's output [..., width]."""
        return cast(Tensor, self.w_out(self.norm_out(z))).squeeze(-1)


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotary position embedding of x [..., heads, size] at positions [...]: element i is turned together with
    element i + size / 2."""
    half = x.shape[-1] // 2
    frequencies = ROPE_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = (positions.unsqueeze(-1) * frequencies).unsqueeze(-2)
    cosine, sine = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def net_of(weights: Mapping[str, Tensor]) -> SequenceNet:
    """The network that has these weights (its `state_dict`, in any floating-point dtype), ready to score in
    float32. Raises ValueError naming the tensor that is missing, unknown, of another shape or not finite."""
    first, heads = weights.get("w_in.weight"), weights.get("heads")
    if first is None or first.dim() != 2 or heads is None or heads.numel() != 1:
        raise ValueError("w_in.weight [width, D] and heads [] must be there")
    width, hidden_size = first.shape
    layers = len({name.split(".")[1] for name in weights if name.startswith("blocks.")})
    net = SequenceNet(hidden_size, width, layers, int(heads))
    expected = net.state_dict()
    for name, tensor in expected.items():
        if name not in weights:
            raise ValueError(f"{name} {list(tensor.shape)} is missing")
        if weights[name].shape != tensor.shape:
            raise ValueError(f"{name} has shape {list(weights[name].shape)}; it must be {list(tensor.shape)}")
        if not torch.isfinite(weights[name]).all():
            raise ValueError(f"{name} holds values that are not finite")
    if unknown := sorted(set(weights) - set(expected)):
        raise ValueError(f"{unknown[0]} is not a tensor of a sequence scorer")
    net.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in weights.items()})
    return net.eval().requires_grad_(False)
