from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf import struct_pb2

from thoughtbeam import _mapping, results
from thoughtbeam.results import NodeState, TreeState
from thoughtbeam.v1 import reasoning_pb2 as pb


def test_every_field_of_a_result() -> None:
    message = pb.Result(
        name="trees/t1",
        state=pb.TREE_STATE_SUCCEEDED,
        answer_state=pb.ANSWER_STATE_ANSWERED,
        answer=pb.Answer(text="42", weight=1.5, share=0.75, node=2, final_text="\\boxed{42}"),
        votes=[pb.Vote(answer="42", weight=1.5, nodes=[2, 1])],
        counts=pb.TreeCounts(nodes=3, roots=2, branches=1, finished=2, pruned=1, ghost=4),
        usage=pb.TokenUsage(prompt=1, generated=2, recomputed=3),
        ended_by="tokens",
        degraded=True,
        policy="gambit",
        scorer="mlp",
        scorer_mismatch="model_fingerprint is a, not b",
    )
    message.elapsed.FromMilliseconds(2500)
    message.queued.FromMilliseconds(500)

    assert _mapping.result(message) == results.Result(
        tree_id="t1",
        state=TreeState.SUCCEEDED,
        answer=results.Answer("42", 1.5, 0.75, 2, "\\boxed{42}"),
        votes=(results.Vote("42", 1.5, (2, 1)),),
        counts=results.TreeCounts(nodes=3, roots=2, branches=1, finished=2, pruned=1, ghost=4),
        usage=results.TokenUsage(1, 2, 3),
        ended_by="tokens",
        degraded=True,
        elapsed=2.5,
        queued=0.5,
        policy="gambit",
        scorer="mlp",
        scorer_mismatch="model_fingerprint is a, not b",
    )


def test_no_answer_is_none_and_not_an_empty_string() -> None:
    result = _mapping.result(pb.Result(name="trees/t1", answer_state=pb.ANSWER_STATE_NO_ANSWER))

    assert result.answer is None
    assert result.text is None


def test_a_node_that_lacks_what_is_optional() -> None:
    root = _mapping.node(pb.Node(number=1, state=pb.NODE_STATE_LIVE))
    branch = _mapping.node(pb.Node(number=2, state=pb.NODE_STATE_GHOST, parent=1, mean_score=0.0))

    assert (root.parent, root.mean_score, root.state) == (None, None, NodeState.LIVE)
    assert (branch.parent, branch.mean_score, branch.state) == (1, 0.0, NodeState.GHOST)


def test_times_and_parameters_of_a_tree() -> None:
    message = pb.Tree(name="trees/t1", state=pb.TREE_STATE_RUNNING)
    message.create_time.FromJsonString("2026-01-31T12:00:00.5Z")
    message.parameters.update({"C": 24, "r": 0.9, "refill": True, "vote": "weighted"})

    tree = _mapping.tree(message)

    assert tree.created == datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
    assert (tree.started, tree.ended, tree.result, tree.error) == (None, None, None, None)
    assert dict(tree.parameters) == {"C": 24, "r": 0.9, "refill": True, "vote": "weighted"}
    # what the wire knows only as a double is a count again
    assert isinstance(tree.parameters["C"], int)
    assert tree.parameters["refill"] is True


def test_why_a_tree_failed() -> None:
    violation = pb.FieldViolation(field="search.question", description="at most 3000 tokens")
    error = pb.TreeError(code=3, reason="PROMPT_TOO_LONG", message="too long", field_violations=[violation])

    mapped = _mapping.tree(pb.Tree(name="trees/t1", error=error)).error

    assert mapped is not None
    assert (mapped.code, mapped.reason, mapped.message) == ("INVALID_ARGUMENT", "PROMPT_TOO_LONG", "too long")
    assert [(v.field, v.description) for v in mapped.violations] == [
        ("search.question", "at most 3000 tokens")
    ]


COUNTS = pb.TreeCounts(nodes=2)
CREATED = pb.NodeTransition(node=3, to=pb.NODE_STATE_PENDING, parent=1)
MOVED = pb.NodeTransition(**{"from": pb.NODE_STATE_LIVE}, node=3, to=pb.NODE_STATE_PRUNED, reason="bottom K")
ROUND = pb.Round(number=2, thoughts=48, capacity_count=24, live=20, ghosts=3, pruned=[4], branched=[1, 2])


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            pb.TreeEvent(event_id="1-0", tree=pb.TreeTransition(state=pb.TREE_STATE_RUNNING, reason="taken")),
            results.TreeTransition("1-0", None, TreeState.RUNNING, "taken"),
        ),
        (
            pb.TreeEvent(event_id="1-1", node=CREATED),
            results.NodeTransition("1-1", None, 3, None, NodeState.PENDING, 1, ""),
        ),
        (
            pb.TreeEvent(event_id="1-2", node=MOVED),
            results.NodeTransition("1-2", None, 3, NodeState.LIVE, NodeState.PRUNED, None, "bottom K"),
        ),
        (
            pb.TreeEvent(event_id="1-3", round=ROUND),
            results.Round("1-3", None, 2, 48, 24, 20, 3, 0.0, (4,), (1, 2)),
        ),
        (
            pb.TreeEvent(event_id="1-4", progress=pb.Progress(counts=COUNTS)),
            results.Progress("1-4", None, results.TreeCounts(nodes=2), results.TokenUsage()),
        ),
        (pb.TreeEvent(event_id="1-5"), results.TreeEvent("1-5", None)),
    ],
)
def test_events(message: pb.TreeEvent, expected: results.TreeEvent) -> None:
    assert _mapping.event(message) == expected


def test_a_state_from_a_newer_service_is_unspecified() -> None:
    newer = pb.Node(number=1)
    newer.MergeFromString(bytes([3 << 3, 99]))  # field 3, varint 99

    assert newer.state == 99
    assert _mapping.node(newer).state is NodeState.UNSPECIFIED


@pytest.mark.parametrize(
    ("enum", "prefix", "ours"),
    [(pb.TreeState, "TREE_STATE_", TreeState), (pb.NodeState, "NODE_STATE_", NodeState)],
)
def test_every_state_of_the_wire_has_a_word(enum: type, prefix: str, ours: type) -> None:
    words = {name.removeprefix(prefix).lower() for name in enum.keys()}  # type: ignore[attr-defined] # noqa: SIM118

    assert words == {str(state) for state in ours}  # type: ignore[attr-defined]


def test_a_policy_and_its_parameters() -> None:
    message = pb.Policy(name="gambit", summary="prune and branch", source="2608.08020", needs_scores=True)
    parameter = message.parameters.add(name="C", symbol="C", description="capacity", type="int", minimum=1)
    parameter.defaults["tiny"].CopyFrom(struct_pb2.Value(number_value=24))
    parameter.defaults["paper"].CopyFrom(struct_pb2.Value(number_value=256))

    policy = _mapping.policy(message)

    assert policy.needs_scores
    (capacity,) = policy.parameters
    assert dict(capacity.defaults) == {"paper": 256, "tiny": 24}
    assert (capacity.minimum, capacity.maximum, capacity.choices) == (1.0, None, ())
