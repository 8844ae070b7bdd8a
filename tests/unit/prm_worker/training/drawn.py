"""Data sets drawn at random, in which it is known what a scorer can find."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from thoughtbeam.runtime.scorer_dataset import ROOT, Origin, QuestionRecord, TraceRecord, question_key
from thoughtbeam.runtime.scorer_dataset_writer import DatasetWriter

HIDDEN = 8
ORIGIN = Origin(
    model="drawn",
    fingerprint="d" * 32,
    engine_version="none",
    boundary_rule="blank_line",
    hidden_size=HIDDEN,
    sampling={"temperature": 1.0, "top_p": 1.0, "top_k": 0, "max_tokens": 100},
    traces=6,
    siblings=0,
    answer_mode="integer",
)


def draw(
    path: Path,
    *,
    questions: int = 40,
    traces: int = 6,
    signal: float = 1.5,
    seed: int = 0,
    right: bool | None = None,
    name: str = "q",
) -> Path:
    """A data set whose rows tell, from the middle of a trace on, whether it is right: the second value is
    ± signal with noise of size 1; the first is hundreds of times as large and says nothing; the third says
    how hard the question is. right: of all traces; None: drawn."""
    random = np.random.default_rng(seed)
    with DatasetWriter(path, ORIGIN) as writer:
        for number in range(questions):
            ease = random.uniform(0.2, 0.8)
            records = []
            for trace in range(traces):
                label = bool(random.random() < ease) if right is None else right
                thoughts = int(random.integers(2, 9))
                rows = random.normal(size=(thoughts, HIDDEN)).astype("<f4")
                rows[:, 0] = 500 + 100 * rows[:, 0]
                rows[thoughts // 2 :, 1] += signal if label else -signal
                rows[:, 2] = ease
                records.append(
                    TraceRecord(
                        number=trace,
                        parent=ROOT,
                        fork_thought=0,
                        prompt_tokens=10,
                        tokens=10 * thoughts + 5,
                        finish="stop",
                        answer="1",
                        right=label,
                        rows=rows.tobytes(),
                        positions=[10 * thought + 19 for thought in range(thoughts)],
                        confidences=[float(value) for value in random.uniform(4, 20, thoughts)],
                    )
                )
            text = f"{name}{number}"
            writer.add(QuestionRecord(question_key(text), text, "float32", records))
    return path
