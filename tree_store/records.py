"""Reads trees and nodes back from their hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tree_store.batches import COUNTERS, USAGE
from tree_store.model import (
    Failure,
    NodeRecord,
    NodeState,
    Outcome,
    TreeRecord,
    TreeState,
)
from tree_store.outcomes import decode_votes


def tree_record(fields: Mapping[str, str]) -> TreeRecord:
    """A tree from its meta hash."""
    return TreeRecord(
        tree_id=fields["tree_id"],
        state=TreeState(fields["state"]),
        search=fields["search"],
        digest=fields["digest"],
        model=fields["model"],
        policy=fields["policy"],
        profile=fields["profile"],
        parameters=fields.get("parameters", ""),
        question=fields["question"],
        epoch=int(fields["epoch"]),
        worker=fields.get("worker", ""),
        created=float(fields["created"]),
        deadline=float(fields["deadline"]),
        started=_time(fields.get("started")),
        ended=_time(fields.get("ended")),
        cancel_requested=fields["cancel_requested"] == "1",
        degraded=fields.get("degraded") == "1",
        counts={name: int(fields[name]) for name in COUNTERS},
        usage={name: int(fields[name]) for name in USAGE},
        outcome=_outcome(fields),
        failure=_failure(fields),
        steps=int(fields.get("steps", 0)),
        scorer=fields.get("scorer", ""),
        scorer_id=fields.get("scorer_id", ""),
        scorer_mismatch=fields.get("scorer_mismatch", ""),
    )


def node_record(number: int, fields: Mapping[str, str]) -> NodeRecord:
    """A node from its hash."""
    return NodeRecord(
        node=number,
        state=NodeState(fields["state"]),
        parent=int(fields["parent"]) if "parent" in fields else None,
        branch_position=int(fields["branch_position"]),
        mean_score=float(fields["mean_score"]) if "mean_score" in fields else None,
        thoughts=int(fields["thoughts"]),
        unique_tokens=int(fields["unique_tokens"]),
        total_tokens=int(fields["total_tokens"]),
        finish_reason=fields.get("finish_reason", ""),
        finish_order=int(fields["finish_order"]) if "finish_order" in fields else None,
        answer=fields.get("answer"),
        winning=fields.get("winning") == "1",
        evictions=int(fields["evictions"]),
    )


def _time(value: str | None) -> float | None:
    return float(value) if value else None


def _outcome(fields: Mapping[str, str]) -> Outcome | None:
    if "answer_state" not in fields:
        return None
    return Outcome(
        answer=fields.get("answer"),
        node=int(fields["answer_node"]) if "answer_node" in fields else None,
        weight=float(fields.get("answer_weight", 0)),
        share=float(fields.get("answer_share", 0)),
        final_text=fields.get("answer_text", ""),
        votes=decode_votes(fields["votes"]),
        ended_by=fields["ended_by"],
        degraded=fields["degraded"] == "1",
        abridged=fields["abridged"] == "1",
    )


def _failure(fields: Mapping[str, str]) -> Failure | None:
    if "failure_code" not in fields:
        return None
    return Failure(
        code=int(fields["failure_code"]),
        reason=fields["failure_reason"],
        message=fields["failure_message"],
        violations=tuple((field, what) for field, what in json.loads(fields["failure_violations"])),
    )
