"""The trainable scorers behind one face: batches of traces in, logits of all their thoughts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from prm_worker.scorer_file import ScorerFile, ScorerFileError
from prm_worker.scorers.mlp import LAYOUT, MlpScorer, check_layout
from prm_worker.scorers.sequence import SequenceNet, net_of
from thoughtbeam.runtime.scorer_dataset_reader import Array, Traces

MLP, SEQUENCE = "mlp", "sequence"
ARCHITECTURES = (MLP, SEQUENCE)
WIDTHS = {MLP: 512, SEQUENCE: 256}  # of the hidden layer; of the projected rows

_ROWS_AT_ONCE = 8192


class Network(Protocol):
    """A scorer's network. weights: as its scorer file has them."""

    kind: str
    module: nn.Module

    def logits(self, traces: Traces, which: Sequence[int] | Array) -> list[Array]:
        """Logits, float32 [thoughts], of each of these traces; without gradients."""
        ...

    def weights(self) -> Mapping[str, Tensor]: ...


class MlpNetwork:
    """STEP's MLP (arXiv 2601.09093) on standardised rows; mean, scale: float32 [D].

    Single dimensions of a model's hidden state can be hundreds of times the others. The standardisation is
    linear, so that it goes into the first layer when the weights are written, and the layout stays STEP's.
    """

    kind = MLP

    def __init__(self, mean: Tensor, scale: Tensor, device: torch.device, width: int = WIDTHS[MLP]) -> None:
        self.module: nn.Module = nn.Sequential(nn.Linear(len(mean), width), nn.ReLU(), nn.Linear(width, 1))
        self.module.to(device)
        self._mean, self._scale, self._device = mean.to(device), scale.to(device), device

    @classmethod
    def of(cls, weights: Mapping[str, Tensor], device: torch.device) -> MlpNetwork:
        """One that has these weights of a scorer file. Raises ValueError."""
        width, hidden_size = check_layout(weights)
        network = cls(torch.zeros(hidden_size), torch.ones(hidden_size), device, width)
        network.module.load_state_dict({name.removeprefix("net."): weights[name].float() for name in LAYOUT})
        return network

    @classmethod
    def fresh(cls, traces: Traces, which: Array, device: torch.device, width: int) -> MlpNetwork:
        """An untrained one for rows like those of these traces."""
        mean, scale = _spread(traces, which, lambda rows: rows)
        return cls(torch.from_numpy(mean).float(), torch.from_numpy(scale).float(), device, width)

    def of_rows(self, rows: Tensor) -> Tensor:
        """Logits [rows] of rows [rows, D]."""
        logits: Tensor = self.module((rows - self._mean) / self._scale).squeeze(1)
        return logits

    @torch.no_grad()
    def logits(self, traces: Traces, which: Sequence[int] | Array) -> list[Array]:
        """See Network."""
        paths = [traces.paths[int(trace)] for trace in which]
        indices, places = np.unique(np.concatenate([*paths, np.empty(0, int)]), return_inverse=True)
        parts = [
            self.of_rows(
                torch.from_numpy(traces.values(indices[start : start + _ROWS_AT_ONCE])).to(self._device)
            )
            for start in range(0, len(indices), _ROWS_AT_ONCE)
        ]
        every = torch.cat(parts).cpu().numpy()[places] if parts else np.empty(0, np.float32)
        return np.split(every, np.cumsum([len(path) for path in paths])[:-1]) if paths else []

    def weights(self) -> Mapping[str, Tensor]:
        """In STEP's layout, float32 on the CPU."""
        state = {f"net.{name}": tensor.detach().double() for name, tensor in self.module.state_dict().items()}
        first = state["net.0.weight"] / self._scale.double()
        state["net.0.bias"] = state["net.0.bias"] - first @ self._mean.double()
        state["net.0.weight"] = first
        return {name: tensor.float().cpu().contiguous() for name, tensor in state.items()}


class SequenceNetwork:
    """The history-aware scorer, see prm_worker.scorers.sequence."""

    kind = SEQUENCE

    def __init__(self, net: SequenceNet, device: torch.device) -> None:
        self.net = net.to(device)
        self.module: nn.Module = self.net
        self._device = device

    @classmethod
    def fresh(cls, traces: Traces, which: Array, device: torch.device, width: int) -> SequenceNetwork:
        """An untrained one for rows like those of these traces.

        Its first LayerNorm begins with the gain and the bias that give each value of their normalised rows
        mean 0 and variance 1: otherwise a value that is hundreds of times the others drowns them.
        """
        net = SequenceNet(traces.rows.shape[1], width)
        mean, scale = _spread(traces, which, lambda rows: _normalised(rows, net.norm_in.eps))
        with torch.no_grad():
            net.norm_in.weight.copy_(torch.from_numpy(1 / scale))
            net.norm_in.bias.copy_(torch.from_numpy(-mean / scale))
        return cls(net, device)

    def batch(self, traces: Traces, which: Sequence[int], lengths: Sequence[int]) -> Tensor:
        """Logits [traces, longest] of the first thoughts of these traces, so many of each."""
        rows = np.zeros((len(which), max(lengths), traces.rows.shape[1]), dtype=np.float32)
        for place, (trace, length) in enumerate(zip(which, lengths, strict=True)):
            rows[place, :length] = traces.values(traces.paths[trace][:length])
        logits: Tensor = self.net(
            torch.from_numpy(rows).to(self._device), torch.tensor(lengths, device=self._device)
        )
        return logits

    @torch.no_grad()
    def logits(self, traces: Traces, which: Sequence[int] | Array) -> list[Array]:
        """See Network."""
        self.net.eval()
        found: dict[int, Array] = {}
        for members in _alike(traces, which):
            lengths = [len(traces.paths[trace]) for trace in members]
            logits = self.batch(traces, members, lengths).cpu().numpy()
            found |= {
                trace: logits[place, :length]
                for place, (trace, length) in enumerate(zip(members, lengths, strict=True))
            }
        return [found[int(trace)] for trace in which]

    def weights(self) -> Mapping[str, Tensor]:
        """As SequenceNet names them, on the CPU."""
        return {name: tensor.detach().cpu().contiguous() for name, tensor in self.net.state_dict().items()}


def fresh_network(kind: str, traces: Traces, which: Array, device: torch.device, width: int = 0) -> Network:
    """An untrained network of this kind; its weights follow from torch's seed. width: 0 for the kind's own.

    Raises ValueError for a width that the kind cannot have.
    """
    width = width or WIDTHS[kind]
    if kind == MLP:
        return MlpNetwork.fresh(traces, which, device, width)
    return SequenceNetwork.fresh(traces, which, device, width)


def network_of(stored: ScorerFile, device: torch.device) -> Network:
    """The network of a scorer file. Raises ScorerFileError for a kind that cannot be judged on rows."""
    kind = stored.metadata.kind
    try:
        if kind == MlpScorer.kind:
            return MlpNetwork.of(stored.weights, device)
        if kind == SEQUENCE:
            return SequenceNetwork(net_of(stored.weights), device)
    except ValueError as error:
        raise ScorerFileError(str(error)) from error
    raise ScorerFileError(f"kind: is {kind!r}; must be one of {', '.join(ARCHITECTURES)}")


def _spread(traces: Traces, which: Array, of: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Mean and standard deviation, [D], of what `of` makes of the rows of these traces, float64 [rows, D]; 1
    for what is constant and says nothing."""
    indices = np.unique(np.concatenate([traces.paths[trace] for trace in which]))
    total, squares = np.zeros(traces.rows.shape[1]), np.zeros(traces.rows.shape[1])
    for start in range(0, len(indices), _ROWS_AT_ONCE):
        rows = of(traces.values(indices[start : start + _ROWS_AT_ONCE]).astype(np.float64))
        total += rows.sum(axis=0)
        squares += (rows**2).sum(axis=0)
    mean = total / len(indices)
    scale = np.sqrt(np.maximum(squares / len(indices) - mean**2, 0.0))
    scale[scale < 1e-6 * max(scale.max(), 1e-30)] = 1.0
    return mean, scale


def _normalised(rows: Array, eps: float) -> Array:
    """LayerNorm without gain and bias."""
    centred: Array = rows - rows.mean(axis=1, keepdims=True)
    found: Array = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
    return found


def _alike(traces: Traces, which: Sequence[int] | Array) -> Iterator[list[int]]:
    """Batches of traces of similar length, so that little of one is padding."""
    order = sorted((int(trace) for trace in which), key=lambda trace: len(traces.paths[trace]))
    batch: list[int] = []
    for trace in order:
        if batch and (len(batch) + 1) * len(traces.paths[trace]) > _ROWS_AT_ONCE:
            yield batch
            batch = []
        batch.append(trace)
    if batch:
        yield batch
