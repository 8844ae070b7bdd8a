"""`python -m prm_worker.training.train`: trains a scorer on collected traces and writes its file."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prm_worker.scorer_file import Metadata, ScorerFile, ScorerFileError, check_writable, write_scorer_file
from prm_worker.scorers.calibration import calibrated
from prm_worker.training.calibrating import METHODS, TEMPERATURE, fit_calibration
from prm_worker.training.data import Split, questions_of, split_by_question
from prm_worker.training.fitting import RATE, FitConfig, Fitted, fit
from prm_worker.training.judging import DEPTHS, Judged, by_depth
from prm_worker.training.networks import ARCHITECTURES, WIDTHS, Network, fresh_network
from prm_worker.training.options import BAD_INPUT, FAILED, command, prepare, rate, share
from thoughtbeam.runtime.arguments import whole
from thoughtbeam.runtime.scorer_dataset import DatasetError
from thoughtbeam.runtime.scorer_dataset_reader import Array, Traces, read_traces

_DESCRIPTION = (
    "Trains a scorer on collected traces, split by question; stops early on questions that it is not "
    "trained on, calibrates it on them, and writes a file that `python -m prm_worker --scorer` serves."
)


def parser() -> argparse.ArgumentParser:
    defaults = FitConfig()
    parser = command("train", _DESCRIPTION)
    add = parser.add_argument
    add(
        "--arch",
        required=True,
        choices=ARCHITECTURES,
        help="mlp: each thought by itself (STEP); sequence: with the thoughts before it",
    )
    add("--out", required=True, type=Path, metavar="FILE", help="scorer file to write (.pt)")
    add(
        "--width",
        type=whole(0),
        default=0,
        help="of the scorer; 0: 512 for mlp, 256 for sequence (default)",
    )
    add(
        "--learning-rate",
        type=rate,
        default=0.0,
        help=f"at its highest (default {RATE:g})",
    )
    add("--seed", type=whole(0), default=defaults.seed, help="of weights, order and split (default 0)")
    add("--epochs", type=whole(1), default=defaults.epochs, help=f"the most (default {defaults.epochs})")
    add(
        "--patience",
        type=whole(1),
        default=defaults.patience,
        help=f"epochs without a gain after which it stops (default {defaults.patience})",
    )
    add(
        "--stop-share",
        type=share,
        default=0.15,
        help="of the questions, for early stopping and calibration (default 0.15)",
    )
    add(
        "--test-share",
        type=share,
        default=0.15,
        help="of the questions, kept for `evaluate` alone; 0 where other questions were collected for it "
        "(default 0.15)",
    )
    add("--calibration", choices=METHODS, default=TEMPERATURE, help=f"default {TEMPERATURE}")
    return parser


def train(options: argparse.Namespace, device: torch.device) -> ScorerFile:
    """Trains as asked. Raises DatasetError."""
    began = time.monotonic()
    traces = read_traces(options.data)
    split = split_by_question(traces, options.seed, options.stop_share, options.test_share)
    parts = {"train": split.train, "stop": split.stop, "test": split.test}
    sizes = ", ".join(
        f"{len(questions_of(traces, part))} questions ({len(part)} traces) to {name}"
        for name, part in parts.items()
    )
    _say(sizes)
    torch.manual_seed(options.seed)
    network = fresh_network(options.arch, traces, split.train, device, options.width)
    config = FitConfig(options.learning_rate, options.epochs, options.patience, options.seed)
    fitted = fit(network, traces, split.train, split.stop, config, _say)
    logits = network.logits(traces, split.stop)
    calibration = fit_calibration(options.calibration, logits, traces.right[split.stop])
    _say(f"kept epoch {fitted.best}, loss {fitted.loss:.4f}; calibration {dict(calibration) or 'none'}"[:300])
    card = {
        "data": _data(options, traces, parts),
        "training": _training(options, config, fitted),
        "seconds": round(time.monotonic() - began, 1),
        "metrics": _metrics(network, traces, split, calibration),
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),  # its own class is no plain value
            "numpy": np.__version__,
            "engine": traces.origin.engine_version,
        },
        # what it must not be calibrated on, and what `evaluate` must not judge it by
        "trained_questions": questions_of(traces, split.train),
        "used_questions": questions_of(traces, np.concatenate([split.train, split.stop])),
    }
    return ScorerFile(
        network.weights(),
        Metadata(
            kind=options.arch,
            hidden_size=traces.origin.hidden_size,
            model_fingerprint=traces.origin.fingerprint,
            boundary_rule=traces.origin.boundary_rule,
            card=card,
            calibration=dict(calibration),
        ),
    )


def _data(options: argparse.Namespace, traces: Traces, parts: Mapping[str, Array]) -> dict[str, Any]:
    every = np.concatenate(list(parts.values()))
    return {
        "model": traces.origin.model,
        "directories": [path.resolve().name for path in options.data],
        "questions": {name: len(questions_of(traces, part)) for name, part in parts.items()},
        "traces": {name: len(part) for name, part in parts.items()},
        "thoughts": int(sum(len(traces.paths[trace]) for trace in every)),
        "right_share": round(float(traces.right[every].mean()), 4),
        "label": "final answer right",
        "split": "by question",
        "sampling": dict(traces.origin.sampling),
        "row_dtype": traces.dtype,
    }


def _training(options: argparse.Namespace, config: FitConfig, fitted: Fitted) -> dict[str, Any]:
    return {
        "arch": options.arch,
        "width": options.width or WIDTHS[options.arch],
        "learning_rate": config.rate or RATE,
        "seed": config.seed,
        "epochs": fitted.epochs,
        "best_epoch": fitted.best,
        "patience": config.patience,
        "stop_share": options.stop_share,
        "test_share": options.test_share,
        "device": options.device,
        "threads": torch.get_num_threads(),
    }


def _metrics(
    network: Network, traces: Traces, split: Split, calibration: Mapping[str, Any]
) -> dict[str, Any]:
    """Figures of the stopping questions, which are a little too good, and of the test questions, if any."""
    found = {}
    for name, part in (("stop", split.stop), ("test", split.test)):
        roots = part[traces.parent[part] < 0] if len(part) else part
        if not len(roots):
            continue
        scores = [calibrated(torch.from_numpy(one), calibration) for one in network.logits(traces, roots)]
        depths = by_depth(Judged.of(traces, roots, scores))
        found[name] = {
            "within_question_ranking_by_depth_percent": {
                str(depth): _rounded(one.pairwise) for depth, one in zip(DEPTHS, depths, strict=True)
            },
            "calibration_error_at_the_end": _rounded(depths[-1].ece),
        }
    return found


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 4)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        device = prepare(options)
        check_writable(options.out)
        scorer = train(options, device)
        write_scorer_file(options.out, scorer)
    except (DatasetError, ScorerFileError, ValueError) as error:
        print(f"thoughtbeam scorer train: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"thoughtbeam scorer train: {error}", file=sys.stderr)
        return FAILED
    _say(f"wrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
