"""Questions of the tiny reasoner, asked of a running service and marked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import rows
from thoughtbeam import AsyncClient
from thoughtbeam.results import NodeState

Value = int | float | str  # of a policy parameter
QUESTIONS = Path(__file__).parent / "questions"
DEADLINE = 7200.0  # seconds; many questions may wait in one queue


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a split and its right answer."""

    id: str
    text: str
    answer: int


@dataclass(frozen=True, slots=True)
class Run:
    """One question under one policy; see bench/rows.py. finished_right: finished traces with the right
    answer."""

    question: str
    answer: str | None
    right: bool
    latency: float
    queued: float
    roots: int
    branches: int
    finished: int
    finished_right: int
    pruned: int
    stopped: int
    rounds: int
    evictions: int
    generated: int
    recomputed: int
    degraded: bool


def load(split: str, limit: int) -> list[Question]:
    """The fixed test list of a split."""
    lines = (QUESTIONS / f"test_{split}.jsonl").read_text().splitlines()
    items = [json.loads(line) for line in lines[:limit]]
    return [Question(item["id"], item["question"], int(item["answer"])) for item in items]


def parameters(policy: str, size: int, overrides: Mapping[str, Value]) -> dict[str, Value]:
    """Traces per question, by the paper's name for them, and the overrides."""
    own: dict[str, Value] = {"N": size}
    if policy == "vanilla":
        return {}
    if policy == "gambit":
        own = {"C": size, "N_max": size}
    if policy == "rebase":
        own = {"W": size}
    return {**own, **overrides}


async def ask(
    client: AsyncClient, question: Question, policy: str, values: Mapping[str, Value], *, scorer: str = ""
) -> Run:
    """One search, and its tree. scorer: as in a request."""
    result = await client.solve(
        question.text,
        policy=policy,
        parameters=dict(values),
        answer_mode="integer",
        deadline=DEADLINE,
        scorer=scorer,
    )
    tree = await client.tree(result.tree_id)
    finished = [node for node in tree.nodes if node.state is NodeState.FINISHED]
    counts = result.counts
    return Run(
        question=question.id,
        answer=result.text,
        right=same(result.text, question.answer),
        latency=round(result.elapsed, 3),
        queued=round(result.queued, 3),
        roots=counts.roots,
        branches=counts.branches,
        finished=counts.finished,
        finished_right=sum(same(node.answer, question.answer) for node in finished),
        pruned=counts.pruned,
        stopped=counts.cancelled + rows.never_begun(values, counts.roots),
        rounds=counts.rounds,
        evictions=counts.evictions,
        generated=result.usage.generated,
        recomputed=result.usage.recomputed,
        degraded=result.degraded,
    )


def same(answer: str | None, right: int) -> bool:
    """Whether an answer is that whole number."""
    try:
        return answer is not None and int(answer) == right
    except ValueError:
        return False
