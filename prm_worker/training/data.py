"""What a scorer is trained on and what it is judged by: split by question, never by trace or thought.

Traces of one question have most of what a scorer could learn by heart in common, and a thought has it with
its neighbours: a split within questions would measure memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prm_worker.scorer_file import Metadata, ScorerFileError
from thoughtbeam.runtime.scorer_dataset import DatasetError
from thoughtbeam.runtime.scorer_dataset_reader import Array, Traces


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Indices of traces. train: gradients. stop: early stopping and calibration. test: neither."""

    train: Array
    stop: Array
    test: Array


def split_by_question(traces: Traces, seed: int, stop_share: float, test_share: float) -> Split:
    """All traces that have a thought, each question's in one part; by a hash of the question, so that the
    order of the data does not matter.

    Raises DatasetError where a part would lack a class: training and stopping need right and wrong traces.
    """
    order = sorted(
        range(len(traces.questions)),
        key=lambda question: hashlib.sha256(f"{seed} {traces.questions[question]}".encode()).digest(),
    )
    tests = round(test_share * len(order))
    stops = max(1, round(stop_share * len(order)))
    part = np.zeros(len(order), dtype=int)  # 0: train
    part[order[:tests]] = 2
    part[order[tests : tests + stops]] = 1
    usable = np.array([len(path) > 0 for path in traces.paths])
    parts = [np.flatnonzero(usable & (part[traces.question] == number)) for number in range(3)]
    for name, which in zip(("training", "stopping"), parts, strict=False):
        check_classes(traces, which, name)
    return Split(*parts)


def questions_of(traces: Traces, which: Array) -> list[str]:
    """Keys of the questions of these traces, sorted."""
    return sorted({traces.questions[index] for index in np.unique(traces.question[which])})


def without_questions(traces: Traces, keys: Sequence[str]) -> Array:
    """Indices of the traces with a thought whose question is not among these."""
    left_out = set(keys)
    asked = np.array([key not in left_out for key in traces.questions], dtype=bool)
    usable = np.array([len(path) > 0 for path in traces.paths], dtype=bool)
    return np.flatnonzero(usable & asked[traces.question])


def check_origin(name: str, scorer: Metadata, traces: Traces) -> None:
    """Raises ScorerFileError for a scorer (called `name`) that was trained for other rows than these."""
    pairs = (
        ("hidden_size", scorer.hidden_size, traces.origin.hidden_size),
        ("model_fingerprint", scorer.model_fingerprint, traces.origin.fingerprint),
        ("boundary_rule", scorer.boundary_rule, traces.origin.boundary_rule),
    )
    for field, trained_for, found in pairs:
        if trained_for and trained_for != found:
            raise ScorerFileError(f"{name}: {field}: is {trained_for}; must be {found}, as in the data")


def check_classes(traces: Traces, which: Array, name: str) -> None:
    """Raises DatasetError where the traces of these questions are all right or all wrong."""
    right = int(traces.right[which].sum())
    if not 0 < right < len(which):
        raise DatasetError(
            f"right: is so for {right} of the {len(which)} traces of the {name} questions; there must be "
            "right and wrong ones: collect more questions, or ones that the model sometimes gets right"
        )
