"""`python -m prm_worker.training.calibrate`: gives a scorer file a calibration, or takes it away."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from prm_worker.scorer_file import ScorerFile, ScorerFileError, read_scorer_file, write_scorer_file
from prm_worker.training.calibrating import METHODS, TEMPERATURE, fit_calibration
from prm_worker.training.data import check_classes, check_origin, questions_of, without_questions
from prm_worker.training.networks import network_of
from prm_worker.training.options import BAD_INPUT, FAILED, command, prepare
from thoughtbeam.runtime.scorer_dataset import DatasetError
from thoughtbeam.runtime.scorer_dataset_reader import read_traces

_DESCRIPTION = (
    "Fits a scorer's calibration on collected traces of questions that it was not trained on, so that its "
    "scores are probabilities: for a scorer that came without one, such as a public STEP checkpoint, or for "
    "questions of another kind. The weights stay as they are."
)


def parser() -> argparse.ArgumentParser:
    parser = command("calibrate", _DESCRIPTION)
    parser.add_argument("--scorer", required=True, type=Path, metavar="FILE", help="scorer file (.pt)")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="scorer file to write; may be the same"
    )
    parser.add_argument("--method", choices=METHODS, default=TEMPERATURE, help=f"default {TEMPERATURE}")
    return parser


def calibrate(options: argparse.Namespace, device: torch.device) -> ScorerFile:
    """The scorer with its new calibration. Raises DatasetError, ScorerFileError."""
    stored = read_scorer_file(options.scorer)
    traces = read_traces(options.data)
    check_origin(str(options.scorer), stored.metadata, traces)
    which = without_questions(traces, stored.metadata.card.get("trained_questions", ()))
    check_classes(traces, which, "calibration")
    logits = network_of(stored, device).logits(traces, which)
    calibration = dict(fit_calibration(options.method, logits, traces.right[which]))
    # what it was calibrated on is no longer fit to judge the calibration by
    used = {*stored.metadata.card.get("used_questions", ()), *questions_of(traces, which)}
    card = {**stored.metadata.card, "used_questions": sorted(used)}
    return ScorerFile(stored.weights, replace(stored.metadata, calibration=calibration, card=card))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        scorer = calibrate(options, prepare(options))
        write_scorer_file(options.out, scorer)
    except (DatasetError, ScorerFileError, ValueError) as error:
        print(f"thoughtbeam scorer calibrate: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"thoughtbeam scorer calibrate: {error}", file=sys.stderr)
        return FAILED
    print(f"wrote {options.out}: {dict(scorer.metadata.calibration) or 'no calibration'}"[:300])
    return 0


if __name__ == "__main__":
    sys.exit(main())
