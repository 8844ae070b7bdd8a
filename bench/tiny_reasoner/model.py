"""The tiny reasoner in plain PyTorch: the Qwen3 architecture, with Hugging Face's parameter names."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.tiny_reasoner.tokenizer import VOCABULARY_SIZE


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes. heads: of queries, a multiple of kv_heads. positions: longest sequence. base: rotary."""

    hidden: int = 128
    inner: int = 384
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 32
    positions: int = 4096
    base: float = 10_000.0


class RmsNorm(nn.Module):
    """Scales the last dimension to a root mean square of one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding. x: [..., T, head_size]; cos, sin: [T, head_size / 2]."""
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


class Attention(nn.Module):
    """Causal self-attention with normalised queries and keys, and several query heads per key head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._shape = shape
        queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.q_proj = nn.Linear(shape.hidden, queries, bias=False)
        self.k_proj = nn.Linear(shape.hidden, keys, bias=False)
        self.v_proj = nn.Linear(shape.hidden, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.hidden, bias=False)
        self.q_norm = RmsNorm(shape.head_size)
        self.k_norm = RmsNorm(shape.head_size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [B, T, hidden]."""
        shape = self._shape
        batch, length, _ = x.shape
        per_head = (batch, length, -1, shape.head_size)
        q = rotate(self.q_norm(self.q_proj(x).view(per_head)).transpose(1, 2), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(per_head)).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(per_head).transpose(1, 2)
        group = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed: Tensor = self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))
        return mixed


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = FeedForward(shape.hidden, shape.inner)
        self.input_layernorm = RmsNorm(shape.hidden)
        self.post_attention_layernorm = RmsNorm(shape.hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class TinyReasoner(nn.Module):
    """The language model; its output weights are its embedding."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(VOCABULARY_SIZE, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden)
        self._initialise()
        rates = 1.0 / shape.base ** (torch.arange(0, shape.head_size, 2).float() / shape.head_size)
        angles = torch.outer(torch.arange(shape.positions).float(), rates)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def _initialise(self) -> None:
        for name, weight in self.named_parameters():
            if name.startswith("embed"):
                nn.init.normal_(weight, std=0.02)
            elif weight.dim() == 2:
                # half the usual scale where a block writes into the residual stream
                scale = 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(weight, std=scale / math.sqrt(weight.shape[1]))

    def forward(self, ids: Tensor) -> Tensor:
        """ids: [B, T] int64. Returns the hidden rows after the final norm, [B, T, hidden]."""
        length = ids.shape[1]
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        hidden: Tensor = self.norm(x)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [..., hidden]. Returns [..., VOCABULARY_SIZE]."""
        return functional.linear(hidden, self.embed_tokens.weight)

    def matrices(self) -> list[nn.Parameter]:
        """The weight matrices inside the layers."""
        return [p for p in self.layers.parameters() if p.dim() == 2]
