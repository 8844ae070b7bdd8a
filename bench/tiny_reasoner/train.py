"""Trains a tiny reasoner: `python -m bench.tiny_reasoner.train --minutes 10 --out OUT`.

The bundled model was trained like this on two CPU cores, each run going on from the one before:

    train --minutes 10 --value-weight 0 --out FIRST
    train --minutes 25 --value-weight 0.1 --start FIRST --out SECOND
    train --minutes 40 --value-weight 0.3 --curriculum 0.02 --muon-rate 0.012 --adam-rate 0.002 \\
          --max-length 2048 --batch-tokens 4096 --start SECOND --out THIRD

So part of what its hidden rows know at boundaries was trained in by the value loss: say so beside results on
it. Another run makes another model of the same kind, not the same weights: the length of a run is a time.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn

from bench.tiny_reasoner.export import export_model, load_model
from bench.tiny_reasoner.model import Shape, TinyReasoner
from bench.tiny_reasoner.training import Trainer, TrainingConfig

_REPORT_EVERY = 50

# Small tensors come and go all the time: without these, glibc returns their pages to the kernel and takes
# them back, which halves the speed. Read when a process starts.
_ALLOCATION = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "20000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "OMP_WAIT_POLICY": "PASSIVE",
}


def train(config: TrainingConfig, start: Path | None, out: Path) -> None:
    """Trains for `config.minutes` in `config.processes` processes and exports the model to `out`.

    start: folder of an exported model to go on from; None: a new model of the bundled one's shape.
    """
    os.environ.update(_ALLOCATION)
    with tempfile.TemporaryDirectory() as scratch:
        rendezvous = f"file://{scratch}/rendezvous"
        spawn(  # type: ignore[no-untyped-call]
            _train_rank, (config, start, out, rendezvous), nprocs=config.processes
        )


def _train_rank(rank: int, config: TrainingConfig, start: Path | None, out: Path, rendezvous: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    if config.processes > 1:
        distributed.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=config.processes)
    trainer = Trainer(load_model(start) if start else TinyReasoner(Shape()), config, rank)
    began = time.monotonic()
    while (progress := _progress(config, began)) < 1:
        losses = trainer.step(progress)
        if rank == 0 and trainer.steps % _REPORT_EVERY == 0:
            figures = f"tokens {losses.tokens:.4f}  values {losses.values:.4f}"
            print(f"{progress:4.0%}  step {trainer.steps}  {figures}", flush=True)
    if rank == 0:
        export_model(trainer.model, out)
        print(f"exported to {out} after {trainer.steps} steps")
    if config.processes > 1:
        distributed.destroy_process_group()


def _progress(config: TrainingConfig, began: float) -> float:
    """The share of the time that is over, by the first process's clock: all must stop at the same step."""
    progress = torch.tensor([(time.monotonic() - began) / (config.minutes * 60)])
    if config.processes > 1:
        distributed.broadcast(progress, 0)
    return progress.item()


def main() -> None:
    defaults = TrainingConfig(minutes=0)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder to export to")
    parser.add_argument("--start", type=Path, help="folder of an exported model to go on from")
    for name in ("seed", "processes", "batch_tokens", "max_length", "most_steps"):
        parser.add_argument(_flag(name), type=int, default=getattr(defaults, name))
    for name in ("curriculum", "muon_rate", "adam_rate", "value_weight", "boundary_weight"):
        parser.add_argument(_flag(name), type=float, default=getattr(defaults, name))
    options = vars(parser.parse_args())
    start, out = options.pop("start"), options.pop("out")
    train(TrainingConfig(**options), start, out)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


if __name__ == "__main__":
    main()
