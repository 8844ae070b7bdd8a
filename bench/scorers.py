"""`python -m bench.scorers`: what the scores of 256 thoughts cost on a CPU.

In one call, 256 thoughts of as many traces, in two hidden sizes: the MLP; the sequence scorer with 300
thoughts of history behind each, whose keys and values it still has, has to compute again from projected rows
(a prm worker that was started anew), or has to compute from the boundary rows (no cache at all); and a whole
Score call to a prm worker of its own, so that what gRPC adds is seen. Weights and rows are drawn, since times
do not depend on them. All passes are of one thread, as by default.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import numpy as np
import torch

from bench.report import markdown, quantile, save
from bench.running_worker import running_prm_worker
from prm_worker.scorer_file import Metadata, ScorerFile, write_scorer_file
from prm_worker.scorers.base import Float32Array, TracePart
from prm_worker.scorers.incremental import CACHE_DTYPES, SequenceScorer
from prm_worker.scorers.mlp import LAYOUT, MlpScorer
from prm_worker.scorers.sequence import SequenceNet, net_of
from prm_worker.tensors import encode_projected
from thoughtbeam.runtime.rpc import CHANNEL_OPTIONS
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub

if TYPE_CHECKING:
    from torch import Tensor

MLP_WIDTH = 512
TREE = "bench"
# How far scores from the cache may be from those of full computation.
TOLERANCE = {"float16": 1e-3, "float32": 1e-5}
_TRACES_AT_ONCE = 8  # in full computation, to bound its memory


@dataclass(frozen=True, slots=True)
class Time:
    """Milliseconds of one call for all traces: the median and the least of some, and the median of the CPU
    time of this process, which others on the machine disturb less. history: thoughts before the new one."""

    what: str
    hidden_size: int
    history: int
    median: float
    least: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured: so many traces, each with a new thought, in calls of which so many are timed."""

    traces: int
    histories: tuple[int, ...]
    times: int

    @property
    def longest(self) -> int:
        return self.histories[-1]


def timed(what: str, hidden_size: int, history: int, times: int, call: Callable[[], object]) -> Time:
    """Times a call, after one that is not counted."""
    call()
    wall, cpu = [], []
    for _ in range(times):
        started, used = time.perf_counter(), time.process_time()
        call()
        cpu.append(1e3 * (time.process_time() - used))
        wall.append(1e3 * (time.perf_counter() - started))
    found = (quantile(wall, 0.5), min(wall), quantile(cpu, 0.5))
    return Time(what, hidden_size, history, *(round(value, 2) for value in found))


def mlp_weights(hidden_size: int) -> dict[str, Tensor]:
    """Of the paper's size."""
    layers = (torch.nn.Linear(hidden_size, MLP_WIDTH), torch.nn.Linear(MLP_WIDTH, 1))
    tensors = [tensor.detach() for layer in layers for tensor in (layer.weight, layer.bias)]
    return dict(zip(LAYOUT, tensors, strict=True))


def parts_of(workload: Workload, first: int) -> Sequence[TracePart]:
    return [TracePart(TREE, node, first, 1) for node in range(workload.traces)]


def measure(hidden_size: int, workload: Workload) -> list[Time]:
    """Everything in one hidden size. Raises RuntimeError when scores differ from full computation."""
    times = workload.times
    mlp, sequence = mlp_weights(hidden_size), SequenceNet(hidden_size).state_dict()
    scorer = MlpScorer(mlp)
    new = np.random.default_rng(0).standard_normal((workload.traces, hidden_size), dtype=np.float32)
    found = [timed("mlp", hidden_size, 0, 4 * times, lambda: scorer.score(new))]
    found += sequence_times(sequence, hidden_size, workload, new)
    for kind, weights in (("mlp", mlp), ("sequence", sequence)):
        found += call_times(kind, weights, hidden_size, workload, new)
    return found


def sequence_times(
    weights: dict[str, Tensor], hidden_size: int, workload: Workload, new: Float32Array
) -> list[Time]:
    """The sequence scorer with caches of each kind, for each length of history, and without."""
    net = net_of(weights)
    room = 2 * workload.traces * (workload.longest + 1) * 2 * net.width
    drawn = np.random.default_rng(2).standard_normal((workload.traces, workload.longest, net.width))
    history = drawn.astype(np.float16)
    found: list[Time] = []
    scores: dict[str, Float32Array] = {}
    for dtype, kind in CACHE_DTYPES.items():
        scorer = SequenceScorer(weights, cache_bytes=room * kind.itemsize, cache_dtype=dtype)
        # slots lie as they do after many branches and ends: everywhere
        np.random.default_rng(3).shuffle(scorer.cache._free)
        for length in workload.histories:
            parts = parts_of(workload, length)
            scorer.drop(TREE, [])
            scorer.score_parts(new, [replace(p, history=history[p.node, :length]) for p in parts])
            call = partial(scorer.score_parts, new, parts)
            found.append(timed(f"sequence, {dtype} cache", hidden_size, length, workload.times, call))
            scores[dtype] = call().scores
    return found + full_times(net, torch.from_numpy(history).float(), workload, new, scores)


def full_times(
    net: SequenceNet,
    history: Tensor,
    workload: Workload,
    new: Float32Array,
    scores: dict[str, Float32Array],
) -> list[Time]:
    """Full computation of the longest histories, from projected rows [traces, thoughts, width] and from
    boundary rows. Raises RuntimeError when `scores`, from each cache, are others."""
    first, size = workload.longest, net.hidden_size

    @torch.inference_mode()
    def from_projected() -> Tensor:
        rows = torch.cat((history, net.project(torch.from_numpy(new)).unsqueeze(1)), 1)
        parts = (rows[start : start + _TRACES_AT_ONCE] for start in range(0, len(rows), _TRACES_AT_ONCE))
        return torch.cat([net.logits(part)[:, -1] for part in parts])

    # the same rows for all: 256 × 301 × 4,096 values would take more than a gigabyte
    rows, lengths = torch.randn(_TRACES_AT_ONCE, first + 1, size), torch.full((_TRACES_AT_ONCE,), first + 1)

    @torch.inference_mode()
    def from_rows() -> None:
        for _ in range(0, workload.traces, _TRACES_AT_ONCE):
            net(rows, lengths)

    right = torch.sigmoid(from_projected()).numpy()
    for dtype, own in scores.items():
        error = float(np.abs(own - right).max())
        if error > TOLERANCE[dtype]:
            raise RuntimeError(f"scores from the {dtype} cache are {error:.2g} off those of full computation")
    few = max(2, workload.times // 5)
    return [
        timed("sequence, full, from projected rows", size, first, few, from_projected),
        timed("sequence, full, from boundary rows", size, first, 1, from_rows),
    ]


def call_times(
    kind: str, weights: dict[str, Tensor], hidden_size: int, workload: Workload, new: Float32Array
) -> list[Time]:
    """Score calls to a prm worker of its own: rows in bfloat16, as a decoder worker has them, and in float32;
    of the sequence scorer also a call that brings all histories."""
    found: list[Time] = []
    first = workload.longest if kind == "sequence" else 0
    traces = [pb.TraceRows(tree_id=TREE, node=n, first_thought=first, rows=1) for n in range(workload.traces)]
    with scorer_stub(ScorerFile(weights, Metadata(kind, hidden_size))) as stub:

        def score(request: pb.ScoreRequest, *, anew: bool = False) -> None:
            if anew:
                stub.DropTraces(pb.DropTracesRequest(tree_id=TREE))
            if stub.Score(request).need_history:
                raise RuntimeError("history was wanted")

        if kind == "sequence":
            shape = (first, SequenceNet(hidden_size).width)
            history = encode_projected(np.random.default_rng(1).standard_normal(shape).astype(np.float16))
            with_history = [pb.TraceRows(history=history) for _ in traces]
            for sent, trace in zip(with_history, traces, strict=True):
                sent.MergeFrom(trace)
            request = pb.ScoreRequest(rows=wire(new, "bfloat16"), traces=with_history)
            what = "call, sequence, all histories lost and sent"
            few = max(2, workload.times // 5)
            found.append(timed(what, hidden_size, first, few, partial(score, request, anew=True)))
        for dtype in ("bfloat16", "float32"):
            request = pb.ScoreRequest(rows=wire(new, dtype), traces=traces)
            what = f"call, {kind}, rows in {dtype}"
            found.append(timed(what, hidden_size, first, 2 * workload.times, partial(score, request)))
    return found


@contextmanager
def scorer_stub(scorer: ScorerFile) -> Iterator[ScorerServiceStub]:
    """A prm worker of its own with this scorer, for the length of the block."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scorer.pt"
        write_scorer_file(path, scorer)
        with (
            running_prm_worker(path) as target,
            grpc.insecure_channel(target, options=CHANNEL_OPTIONS) as channel,
        ):
            yield ScorerServiceStub(channel)


def wire(rows: Float32Array, dtype: str) -> pb.Tensor:
    """Rows as a decoder worker sends them."""
    if dtype == "float32":
        return pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, shape=rows.shape, data=rows.tobytes())
    upper = (rows.view(np.uint32) >> 16).astype("<u2")
    return pb.Tensor(dtype=pb.DATA_TYPE_BFLOAT16, shape=rows.shape, data=upper.tobytes())


def table(found: Sequence[Time], workload: Workload) -> str:
    """One row per thing measured, one column per hidden size, and what follows from them."""
    sizes = list(dict.fromkeys(t.hidden_size for t in found))
    by_place = {(t.what, t.history, t.hidden_size): t for t in found}
    rows = []
    for what, history in dict.fromkeys((t.what, t.history) for t in found):
        own = [by_place[what, history, size] for size in sizes]
        cells = [f"{t.median:,.1f} ({t.least:,.1f}; {t.cpu:,.1f})" for t in own]
        rows.append([what, f"{history}" if history else "–", *cells])
    header = [f"ms for {workload.traces} new thoughts, median (least; CPU here)", "thoughts before"]
    return markdown([*header, *(f"D = {size:,}" for size in sizes)], rows)


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--hidden", type=int, nargs="+", default=[2560, 4096], help="sizes D of the rows")
    options.add_argument("--traces", type=int, default=256, help="with a new thought each")
    options.add_argument(
        "--histories", type=int, nargs="+", default=[75, 150, 300], help="thoughts before it"
    )
    options.add_argument("--times", type=int, default=15, help="that each call is timed, about")
    options.add_argument("--quick", action="store_true", help="a small run that only shows that it works")
    args = options.parse_args()
    if args.quick:
        args.hidden, args.traces, args.histories, args.times = [64], 16, [4, 8], 3
    torch.set_num_threads(1)
    torch.manual_seed(0)
    workload = Workload(args.traces, tuple(sorted(args.histories)), args.times)
    load = os.getloadavg()[0]
    found = [one for hidden in args.hidden for one in measure(hidden, workload)]
    text = table(found, workload)
    setting = {"traces": args.traces, "threads": 1, "load_before": round(load, 1)}
    name = "scorers-quick" if args.quick else "scorers"
    path = save(name, {**setting, "times_ms": [asdict(one) for one in found]}, text)
    print(f"{text}\n\nwritten to {path}")


if __name__ == "__main__":
    main()
