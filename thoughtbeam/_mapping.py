"""From the messages of the wire to the types of results.py; the same for both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypedDict

import grpc
from google.protobuf import json_format, struct_pb2, timestamp_pb2

from thoughtbeam import results
from thoughtbeam.errors import FieldViolation
from thoughtbeam.v1 import reasoning_pb2 as pb


class _Position(TypedDict):
    event_id: str
    time: datetime | None


_CODE_NAMES = {code.value[0]: code.name for code in grpc.StatusCode}


def result(message: pb.Result) -> results.Result:
    return results.Result(
        tree_id=_last_part(message.name),
        state=_tree_state(message.state),
        answer=_answer(message.answer) if message.HasField("answer") else None,
        votes=tuple(results.Vote(v.answer, v.weight, tuple(v.nodes)) for v in message.votes),
        counts=_counts(message.counts),
        usage=_usage(message.usage),
        ended_by=message.ended_by,
        degraded=message.degraded,
        elapsed=message.elapsed.ToNanoseconds() / 1e9,
        queued=message.queued.ToNanoseconds() / 1e9,
        policy=message.policy,
        abridged=message.abridged,
        scorer=message.scorer,
        scorer_mismatch=message.scorer_mismatch,
    )


def event(message: pb.TreeEvent) -> results.TreeEvent:
    """An event of a kind that this client does not know becomes a plain TreeEvent."""
    at = _Position(event_id=message.event_id, time=_time(message.time) if message.HasField("time") else None)
    match message.WhichOneof("kind"):
        case "tree":
            tree_change = message.tree
            return results.TreeTransition(
                **at, state=_tree_state(tree_change.state), reason=tree_change.reason
            )
        case "node":
            change = message.node
            before = getattr(change, "from")
            return results.NodeTransition(
                **at,
                node=change.node,
                before=_node_state(before) if before else None,
                after=_node_state(change.to),
                parent=change.parent if change.HasField("parent") else None,
                reason=change.reason,
            )
        case "round":
            held = message.round
            return results.Round(
                **at,
                number=held.number,
                thoughts=held.thoughts,
                capacity_count=held.capacity_count,
                live=held.live,
                ghosts=held.ghosts,
                kv_use=held.kv_use,
                pruned=tuple(held.pruned),
                branched=tuple(held.branched),
            )
        case "progress":
            sample = message.progress
            return results.Progress(**at, counts=_counts(sample.counts), usage=_usage(sample.usage))
        case _:
            return results.TreeEvent(**at)


def tree(message: pb.Tree, nodes: tuple[results.Node, ...] = ()) -> results.Tree:
    return results.Tree(
        id=_last_part(message.name),
        state=_tree_state(message.state),
        model=message.model,
        policy=message.policy,
        profile=message.profile,
        parameters=MappingProxyType({k: _value(v) for k, v in sorted(message.parameters.fields.items())}),
        created=_time(message.create_time) if message.HasField("create_time") else None,
        started=_time(message.start_time) if message.HasField("start_time") else None,
        ended=_time(message.end_time) if message.HasField("end_time") else None,
        deadline=_time(message.deadline) if message.HasField("deadline") else None,
        counts=_counts(message.counts),
        usage=_usage(message.usage),
        worker=message.worker,
        epoch=message.epoch,
        result=result(message.result) if message.HasField("result") else None,
        error=_tree_error(message.error) if message.HasField("error") else None,
        question=message.question,
        nodes=nodes,
        last_event_id=message.last_event_id,
    )


def node(message: pb.Node) -> results.Node:
    return results.Node(
        number=message.number,
        state=_node_state(message.state),
        parent=message.parent if message.HasField("parent") else None,
        branch_position=message.branch_position,
        mean_score=message.mean_score if message.HasField("mean_score") else None,
        thoughts=message.thoughts,
        unique_tokens=message.unique_tokens,
        total_tokens=message.total_tokens,
        finish_reason=message.finish_reason,
        answer=message.answer,
        winning=message.winning,
    )


def trace(node_message: pb.Node, thoughts: Sequence[pb.Thought], text: str) -> results.Trace:
    """thoughts: with their ends in bytes of the text."""
    raw = text.encode()
    found: list[results.Thought] = []
    begin = 0
    for message in thoughts:
        found.append(
            results.Thought(
                position=message.position,
                text=raw[begin : message.text_end].decode(errors="replace"),
                score=message.score if message.HasField("score") else None,
                confidence=message.confidence if message.HasField("confidence") else None,
                node=message.node,
            )
        )
        begin = message.text_end
    return results.Trace(node(node_message), tuple(found), text, raw[begin:].decode(errors="replace"))


def load(message: pb.GetLoadResponse) -> results.Load:
    return results.Load(
        queued_trees=message.queued_trees,
        max_queued_trees=message.max_queued_trees,
        oldest_wait=message.oldest_wait.ToNanoseconds() / 1e9 if message.HasField("oldest_wait") else None,
        running_trees=message.running_trees,
        workers=message.workers,
        slots=message.slots,
        free_slots=message.free_slots,
        waiting_traces=message.waiting_traces,
        kv_use=message.kv_use,
    )


def worker(message: pb.Worker) -> results.Worker:
    return results.Worker(
        id=_last_part(message.name),
        state=results.WorkerState(_enum_word(pb.WorkerState, message.state, "WORKER_STATE_")),
        model=message.model,
        slots=message.slots,
        free_slots=message.free_slots,
        waiting_traces=message.waiting_traces,
        trees=message.trees,
        kv_use=message.kv_use,
        max_context=message.max_context,
        max_capacity=message.max_capacity,
        scorer=message.scorer,
        last_seen=_time(message.last_seen) if message.HasField("last_seen") else None,
    )


def policy(message: pb.Policy) -> results.Policy:
    return results.Policy(
        name=message.name,
        summary=message.summary,
        source=message.source,
        parameters=tuple(_parameter(p) for p in message.parameters),
        needs_scores=message.needs_scores,
    )


def _parameter(message: pb.PolicyParameter) -> results.PolicyParameter:
    defaults: Mapping[str, Any] = message.defaults
    return results.PolicyParameter(
        name=message.name,
        symbol=message.symbol,
        description=message.description,
        source=message.source,
        type=message.type,
        defaults=MappingProxyType({profile: _value(v) for profile, v in sorted(defaults.items())}),
        minimum=message.minimum if message.HasField("minimum") else None,
        maximum=message.maximum if message.HasField("maximum") else None,
        choices=tuple(message.choices),
    )


def _answer(message: pb.Answer) -> results.Answer:
    return results.Answer(message.text, message.weight, message.share, message.node, message.final_text)


def _tree_error(message: pb.TreeError) -> results.TreeError:
    return results.TreeError(
        code=_CODE_NAMES.get(message.code, str(message.code)),
        reason=message.reason,
        message=message.message,
        violations=tuple(FieldViolation(v.field, v.description) for v in message.field_violations),
    )


def _counts(message: pb.TreeCounts) -> results.TreeCounts:
    return results.TreeCounts(**{f: getattr(message, f) for f in results.TreeCounts.__dataclass_fields__})


def _usage(message: pb.TokenUsage) -> results.TokenUsage:
    return results.TokenUsage(message.prompt, message.generated, message.recomputed)


def _tree_state(number: int) -> results.TreeState:
    return results.TreeState(_enum_word(pb.TreeState, number, "TREE_STATE_"))


def _node_state(number: int) -> results.NodeState:
    return results.NodeState(_enum_word(pb.NodeState, number, "NODE_STATE_"))


def _enum_word(enum: Any, number: int, prefix: str) -> str:
    """`TREE_STATE_QUEUED` -> `queued`; a number from a newer service is `unspecified`."""
    name = enum.Name(number) if number in enum.values() else f"{prefix}UNSPECIFIED"
    return str(name).removeprefix(prefix).lower()


def _value(message: struct_pb2.Value) -> results.ParameterValue:
    """A Struct holds every number as a double; whole ones come back as int."""
    value: Any = json_format.MessageToDict(message)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, bool | float | str | None) else str(value)


def _time(message: timestamp_pb2.Timestamp) -> datetime:
    return message.ToDatetime(tzinfo=UTC)


def _last_part(name: str) -> str:
    return name.rpartition("/")[2]
