"""The data set that scorers are trained on: what it holds, and how it lies in its directory.

    manifest.json       what the rows are and where they come from; which questions are done, and where
    shard-00000.npz …   the traces of some questions each, plain arrays, see ARRAYS

A shard is written and named before the manifest knows it, and both in one step: whatever interrupts the
writer, the directory holds whole questions only. The files are numpy's and JSON, no pickle: reading them runs
no code.

The traces of a question form trees. A branch holds its own thoughts only; its first `fork_thought` thoughts
are the first ones of its parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
ROOT = -1  # parent of a trace that is no branch

# As stored; numpy has no bfloat16, so its two bytes travel as a whole number.
ROW_TYPES = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}

# Type and length of each array of a shard: Q questions, T traces, N thoughts of their own, D hidden size.
ARRAYS: Mapping[str, tuple[str, str]] = {
    "keys": ("U", "[Q] what identifies each question, see question_key"),
    "question": ("<i4", "[T] index into keys"),
    "number": ("<i4", "[T] of the trace within its question, from 0"),
    "parent": ("<i4", "[T] number of the parent, -1 for a root"),
    "fork_thought": ("<i4", "[T] thoughts inherited from the parent"),
    "prompt_tokens": ("<i4", "[T]"),
    "tokens": ("<i4", "[T] of the whole trace without the prompt, inherited ones included"),
    "finish": ("U", "[T] stop or length"),
    "answer": ("U", "[T] final answer, empty without one"),
    "right": ("|b1", "[T] whether the final answer equals the known one"),
    "offsets": ("<i8", "[T + 1] where each trace's thoughts begin in the arrays below"),
    "rows": ("", "[N, D] hidden rows of the boundaries, in the manifest's dtype"),
    "positions": ("<i4", "[N] of the boundary tokens in the whole sequence, prompt included"),
    "confidences": ("<f4", "[N] mean token confidence of each thought, NaN where it is not known"),
}


class DatasetError(ValueError):
    """A data set that cannot be used; one line that names the file, the field and what is allowed."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What made the rows. Rows of different origins are never in one data set.

    model: as it is called. fingerprint, engine_version, boundary_rule, hidden_size: as in EngineInfo.
    sampling: temperature, top_p, top_k, max_tokens. traces, siblings: roots and branches of each question.
    answer_mode, answer_regex: how answers were read.
    """

    model: str
    fingerprint: str
    engine_version: str
    boundary_rule: str
    hidden_size: int
    sampling: Mapping[str, float]
    traces: int
    siblings: int
    answer_mode: str
    answer_regex: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """A file of the data set. questions: what people call them, by key. right: traces whose answer is."""

    file: str
    questions: Mapping[str, str]
    traces: int
    thoughts: int
    right: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """dtype: of the rows; empty while there is none. failed: message by question key."""

    origin: Origin
    dtype: str = ""
    shards: Sequence[Shard] = ()
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def questions(self) -> dict[str, str]:
        """Names of the questions that are done, by key."""
        return {key: name for shard in self.shards for key, name in shard.questions.items()}

    def as_json(self) -> dict[str, Any]:
        origin = {name: getattr(self.origin, name) for name in Origin.__dataclass_fields__}
        shards = [
            {name: getattr(shard, name) for name in Shard.__dataclass_fields__} for shard in self.shards
        ]
        return {
            "format": FORMAT,
            "origin": {**origin, "sampling": dict(self.origin.sampling)},
            "dtype": self.dtype,
            "shards": [{**shard, "questions": dict(shard["questions"])} for shard in shards],
            "failed": dict(self.failed),
        }


@dataclass(frozen=True, slots=True)
class TraceRecord:
    """One trace as collected. rows: raw values [thoughts of its own, hidden size]; the rest as in ARRAYS."""

    number: int
    parent: int
    fork_thought: int
    prompt_tokens: int
    tokens: int
    finish: str
    answer: str
    right: bool
    rows: bytes
    positions: Sequence[int]
    confidences: Sequence[float]


@dataclass(frozen=True, slots=True)
class QuestionRecord:
    """All traces of one question, parents before branches. dtype: of the rows; empty without a thought."""

    key: str
    name: str
    dtype: str
    traces: Sequence[TraceRecord]


def question_key(question: str) -> str:
    """16 hexadecimal digits that identify a question by its text, whatever it is called in a list: so that
    one that was trained on is known again in another list."""
    return hashlib.sha256(question.encode()).hexdigest()[:16]
