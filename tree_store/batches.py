"""Turns batches into the keys and arguments of the scripts that apply them (lua/shared/{nodes,batch}.lua)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tree_store.keys import TreeKeys
from tree_store.model import Batch, Failure, NodeChange, NodeState, Outcome, RoundRecord, TreeState
from tree_store.outcomes import IN_META, abridge, encode, encode_votes
from tree_store.packing import pack_confidences, pack_thoughts, pack_tokens

# Kept by the scripts themselves, from the transitions.
COUNTERS = (
    "nodes",
    "roots",
    "branches",
    *(state.value for state in NodeState),
    "rounds",
    "thoughts",
    "evictions",
)
USAGE = ("prompt", "generated", "recomputed")
TREE_OWNED = frozenset(COUNTERS) | {
    *(
        "tree_id",
        "digest",
        "search",
        "state",
        "epoch",
        "seq",
        "worker",
        "lease",
        "assignment",
        "creation",
        "queue_entry",
        "max_events",
    ),
    *("created", "started", "ended", "deadline", "expires", "cancel_requested"),
}
NODE_OWNED = frozenset({"state", "parent", "branch_position", "mean_score", "evictions"})

_APPENDED = ("tokens", "text", "thoughts", "confidences", "history")

Argument = str | int | float | bytes


@dataclass(frozen=True, slots=True)
class Ending:
    """How a tree ends: its final state, why ("" where that is obvious), and what is stored with it.

    outcome: the whole of it, JSON; "" for none.
    """

    state: TreeState
    reason: str
    fields: Mapping[str, str]
    outcome: str


def ending(state: TreeState, outcome: Outcome | None, failure: Failure | None) -> Ending:
    """The ending of a tree. Raises ValueError when the state and what comes with it do not fit."""
    if state not in (TreeState.SUCCEEDED, TreeState.FAILED, TreeState.CANCELLED, TreeState.EXPIRED):
        raise ValueError(f"{state} is not a final state")
    if (state is TreeState.SUCCEEDED) and outcome is None:
        raise ValueError("a tree that succeeded has an outcome")
    if (state in (TreeState.FAILED, TreeState.EXPIRED)) != (failure is not None):
        raise ValueError("a tree has a failure if and only if it failed or expired")
    fields: dict[str, str] = {}
    reason = ""
    if outcome is not None:
        fields |= _outcome_fields(abridge(outcome, IN_META))
        reason = outcome.ended_by
    if failure is not None:
        fields |= _failure_fields(failure)
        reason = failure.reason
    return Ending(state, reason, fields, "" if outcome is None else encode(outcome))


def encode_nodes(
    keys: TreeKeys, changes: Sequence[NodeChange], end: Ending
) -> tuple[list[str], list[Argument]]:
    """Keys and arguments of the scripts that end a tree early: nothing is appended to its nodes."""
    body = {"nodes": [_encode_change(change) for change in changes], "ending": _encode_ending(end)}
    return [*keys.of_batch(), *(keys.node(change.node) for change in changes)], [json.dumps(body)]


def encode_batch(
    keys: TreeKeys, epoch: int, seq: int, batch: Batch, end: Ending | None = None
) -> tuple[list[str], list[Argument]]:
    """Keys and arguments of commit, or of finish when there is an end.

    Raises ValueError for fields that the store keeps itself and for a mean score that is not finite.
    """
    if seq < 1:
        raise ValueError(f"seq {seq}: counts from 1")
    body: dict[str, Any] = {
        "nodes": [_encode_change(change) for change in batch.nodes],
        "fields": _flat(batch.fields, TREE_OWNED),
    }
    if batch.rounds:
        body["rounds"] = [_encode_round(record) for record in batch.rounds]
    if batch.progress:
        body["progress"] = True
    if end is not None:
        body["ending"] = _encode_ending(end)
    names = keys.of_batch()
    appended: list[bytes] = []
    for change in batch.nodes:
        names.append(keys.node(change.node))
        if change.tokens:
            names.append(keys.tokens(change.node))
            appended.append(pack_tokens(change.tokens))
        if change.text:
            names.append(keys.text(change.node))
            appended.append(change.text.encode())
        if change.thoughts:
            names.append(keys.thoughts(change.node))
            appended.append(pack_thoughts(change.thoughts))
        if change.confidences:
            names.append(keys.confidences(change.node))
            appended.append(pack_confidences(change.confidences))
        if change.history:
            names.append(keys.history(change.node))
            appended.append(change.history)
    arguments: list[Argument] = [epoch, seq, json.dumps(body), batch.policy_state or "", *appended]
    return names, arguments if end is None else [*arguments, end.outcome]


def _encode_change(change: NodeChange) -> dict[str, Any]:
    """One change as nodes.lua reads it; `appends` names the keys that follow its own."""
    encoded: dict[str, Any] = {
        "node": change.node,
        "path": list(change.path),
        "appends": [name for name in _APPENDED if getattr(change, name)],
        "fields": _flat(change.fields, NODE_OWNED),
    }
    if change.before is not None:
        encoded["before"] = change.before
    else:
        encoded["branch_position"] = change.branch_position
        if change.parent is not None:
            encoded["parent"] = change.parent
    if change.reason:
        encoded["reason"] = change.reason
    if change.mean_score is not None:
        if not math.isfinite(change.mean_score):
            raise ValueError(f"node {change.node}: mean score {change.mean_score} is not finite")
        # as text: Lua would round the number to 14 digits
        encoded["mean_score"] = repr(change.mean_score)
    return encoded


def _encode_round(record: RoundRecord) -> list[str]:
    return _flat(
        {
            "number": str(record.number),
            "thoughts": str(record.thoughts),
            "capacity_count": str(record.capacity_count),
            "live": str(record.live),
            "ghosts": str(record.ghosts),
            "kv_use": f"{record.kv_use:.4f}",
            "pruned": ",".join(map(str, record.pruned)),
            "branched": ",".join(map(str, record.branched)),
        }
    )


def _encode_ending(end: Ending) -> dict[str, Any]:
    encoded: dict[str, Any] = {"state": end.state, "fields": _flat(end.fields)}
    if end.reason:
        encoded["reason"] = end.reason
    return encoded


def _flat(fields: Mapping[str, str], owned: frozenset[str] = frozenset()) -> list[str]:
    """name, value, name, value, … as Redis commands take them."""
    refused = owned & fields.keys()
    if refused:
        raise ValueError(f"fields kept by the store itself: {', '.join(sorted(refused))}")
    return [part for pair in fields.items() for part in pair]


def _outcome_fields(outcome: Outcome) -> dict[str, str]:
    fields = {
        "answer_state": "no_answer" if outcome.answer is None else "answered",
        "votes": encode_votes(outcome.votes),
        "ended_by": outcome.ended_by,
        "degraded": str(int(outcome.degraded)),
        "abridged": str(int(outcome.abridged)),
    }
    if outcome.answer is not None:
        fields |= {
            "answer": outcome.answer,
            "answer_weight": repr(outcome.weight),
            "answer_share": repr(outcome.share),
            "answer_text": outcome.final_text,
        }
    if outcome.node is not None:
        fields["answer_node"] = str(outcome.node)
    return fields


def _failure_fields(failure: Failure) -> dict[str, str]:
    return {
        "failure_code": str(failure.code),
        "failure_reason": failure.reason,
        "failure_message": failure.message,
        "failure_violations": json.dumps(failure.violations),
    }
