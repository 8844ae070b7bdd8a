"""From the tree store's records to the wire's messages, and from a request to a new tree."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from google.protobuf import json_format
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from gateway.names import node_name, tree_name, worker_name
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.events import Event
from tree_store.model import Failure, NewTree, NodeRecord, NodeState, Outcome, Thought, TreeRecord, TreeState
from tree_store.presence import WorkerRecord

QUESTION_CHARS = 200
_INTERNAL = 13  # google.rpc.Code

_COUNTS = tuple(pb.TreeCounts.DESCRIPTOR.fields_by_name)
_USAGE = tuple(pb.TokenUsage.DESCRIPTOR.fields_by_name)
# names of the wire's enum values
TREE_STATES = {state: f"TREE_STATE_{state.name}" for state in TreeState}
NODE_STATES = {state: f"NODE_STATE_{state.name}" for state in NodeState}


def new_tree(tree_id: str, search: pb.Search, deadline: float, max_events: int) -> NewTree:
    """The tree of an accepted search. deadline: seconds since the epoch. max_events: that its feed keeps.

    Its digest tells a retry from a request id that was used for another search; whether a call wants its tree
    cancelled when it ends early is not part of it.
    """
    return NewTree(
        tree_id=tree_id,
        search=json_format.MessageToJson(search, preserving_proto_field_name=True, indent=None),
        digest=hashlib.sha256(search.SerializeToString(deterministic=True)).hexdigest(),
        model=search.model,
        policy=search.policy,
        profile=search.profile,
        question=_last_question(search)[:QUESTION_CHARS],
        deadline=deadline,
        max_events=max_events,
    )


def search_of(text: str) -> pb.Search:
    """The search of a stored tree. Fields that a newer release has added are ignored."""
    return json_format.Parse(text, pb.Search(), ignore_unknown_fields=True)


def _last_question(search: pb.Search) -> str:
    if search.WhichOneof("prompt") == "question":
        return search.question
    return next((m.content for m in reversed(search.conversation.messages) if m.role == "user"), "")


def tree(record: TreeRecord, outcome: Outcome | None) -> pb.Tree:
    """outcome: as much of the tree's as is to be shown."""
    message = pb.Tree(
        name=tree_name(record.tree_id),
        state=TREE_STATES[record.state],
        model=record.model,
        policy=record.policy,
        profile=record.profile,
        create_time=timestamp(record.created),
        deadline=timestamp(record.deadline),
        counts=pb.TreeCounts(**record.counts),
        usage=pb.TokenUsage(**record.usage),
        worker=record.worker,
        epoch=record.epoch,
        question=record.question,
    )
    if record.parameters:
        message.parameters.update(json.loads(record.parameters))
    if record.started is not None:
        message.start_time.CopyFrom(timestamp(record.started))
    if record.ended is not None:
        message.end_time.CopyFrom(timestamp(record.ended))
    if record.state in (TreeState.SUCCEEDED, TreeState.CANCELLED):
        message.result.CopyFrom(result(record, outcome))
    if record.failure is not None:
        message.error.CopyFrom(error(record.failure))
    return message


def result(record: TreeRecord, outcome: Outcome | None) -> pb.Result:
    """The result of a tree that has succeeded or was cancelled. outcome: as much of it as is to be shown."""
    ended = record.created if record.ended is None else record.ended
    message = pb.Result(
        name=tree_name(record.tree_id),
        state=TREE_STATES[record.state],
        answer_state=pb.ANSWER_STATE_NO_ANSWER,
        counts=pb.TreeCounts(**record.counts),
        usage=pb.TokenUsage(**record.usage),
        elapsed=duration(ended - record.created),
        queued=duration((ended if record.started is None else record.started) - record.created),
        policy=record.policy,
        degraded=record.degraded,
        scorer=record.scorer,
        scorer_mismatch=record.scorer_mismatch,
    )
    if outcome is not None:
        _add_outcome(message, outcome)
    return message


def _add_outcome(message: pb.Result, outcome: Outcome) -> None:
    message.ended_by, message.abridged = outcome.ended_by, outcome.abridged
    message.votes.extend(pb.Vote(answer=v.answer, weight=v.weight, nodes=v.nodes) for v in outcome.votes)
    if outcome.answer is not None:
        message.answer_state = pb.ANSWER_STATE_ANSWERED
        message.answer.CopyFrom(
            pb.Answer(
                text=outcome.answer,
                weight=outcome.weight,
                share=outcome.share,
                node=outcome.node or 0,
                final_text=outcome.final_text,
            )
        )


def failure_message(failure: Failure) -> str:
    """What a client is told: the text of an internal error is for the log, it may name hosts and files."""
    if failure.code == _INTERNAL:
        return "the search failed inside its worker, whose log says how"
    return failure.message


def error(failure: Failure) -> pb.TreeError:
    return pb.TreeError(
        code=failure.code,
        reason=failure.reason,
        message=failure_message(failure),
        field_violations=[pb.FieldViolation(field=f, description=d) for f, d in failure.violations],
    )


def node(tree_id: str, record: NodeRecord) -> pb.Node:
    return pb.Node(
        name=node_name(tree_id, record.node),
        number=record.node,
        state=NODE_STATES[record.state],
        parent=record.parent,
        branch_position=record.branch_position,
        mean_score=record.mean_score,
        thoughts=record.thoughts,
        unique_tokens=record.unique_tokens,
        total_tokens=record.total_tokens,
        finish_reason=record.finish_reason,
        answer=record.answer or "",
        winning=record.winning,
    )


def thought(node: int, thought: Thought, text_start: int) -> pb.Thought:
    """text_start: bytes of the trace's text before the node's own."""
    return pb.Thought(
        position=thought.position,
        score=thought.score,
        confidence=thought.confidence,
        text_end=text_start + thought.text_end,
        node=node,
    )


def worker(record: WorkerRecord) -> pb.Worker:
    return pb.Worker(
        name=worker_name(record.worker),
        state=pb.WORKER_STATE_DRAINING if record.draining else pb.WORKER_STATE_SERVING,
        model=record.model,
        slots=record.slots,
        free_slots=record.free_slots,
        waiting_traces=record.waiting_traces,
        trees=record.trees,
        kv_use=record.kv_use,
        max_context=record.max_context,
        max_capacity=record.max_capacity,
        scorer=record.scorer,
        last_seen=timestamp(record.last_seen),
    )


def event(tree_id: str, event: Event) -> pb.TreeEvent:
    message = pb.TreeEvent(event_id=event.event_id, time=timestamp(event.time))
    fields = event.fields
    match event.kind:
        case "tree":
            state = TREE_STATES[TreeState(fields["to"])]
            message.tree.CopyFrom(
                pb.TreeTransition(name=tree_name(tree_id), state=state, reason=fields.get("reason", ""))
            )
        case "node":
            message.node.CopyFrom(_node_transition(fields))
        case "round":
            message.round.CopyFrom(_round(fields))
        case "progress":
            message.progress.CopyFrom(
                pb.Progress(
                    counts=pb.TreeCounts(**{name: int(fields[name]) for name in _COUNTS}),
                    usage=pb.TokenUsage(**{name: int(fields[name]) for name in _USAGE}),
                )
            )
    return message


def _node_transition(fields: Mapping[str, str]) -> pb.NodeTransition:
    states = {name: NODE_STATES[NodeState(fields[name])] for name in ("from", "to") if name in fields}
    parent = int(fields["parent"]) if "parent" in fields else None
    # by name: `from` is a word of Python's own
    return pb.NodeTransition(
        node=int(fields["node"]), parent=parent, reason=fields.get("reason", ""), **states
    )


def _round(fields: Mapping[str, str]) -> pb.Round:
    return pb.Round(
        **{name: int(fields[name]) for name in ("number", "thoughts", "capacity_count", "live", "ghosts")},
        kv_use=float(fields["kv_use"]),
        pruned=_numbers(fields["pruned"]),
        branched=_numbers(fields["branched"]),
    )


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def timestamp(seconds: float) -> Timestamp:
    """seconds: since the epoch, kept to the microsecond."""
    message = Timestamp()
    message.FromMicroseconds(round(seconds * 1e6))
    return message


def duration(seconds: float) -> Duration:
    message = Duration()
    message.FromMicroseconds(round(seconds * 1e6))
    return message
