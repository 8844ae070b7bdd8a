"""From a request to a new tree, and from what is stored to the wire."""

from __future__ import annotations

import dataclasses

import pytest

from gateway import mapping
from tests.unit.gateway.requests import REQUEST_ID, reason_request
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.events import Event
from tree_store.model import (
    Failure,
    NodeRecord,
    NodeState,
    Outcome,
    RoundRecord,
    Thought,
    TreeRecord,
    TreeState,
    VoteRecord,
)
from tree_store.presence import WorkerRecord

COUNTS = {name: n for n, name in enumerate(pb.TreeCounts.DESCRIPTOR.fields_by_name, 1)}
USAGE = {"prompt": 7, "generated": 8, "recomputed": 9}

RECORD = TreeRecord(
    tree_id=REQUEST_ID,
    state=TreeState.RUNNING,
    search="{}",
    digest="d",
    model="tiny",
    policy="gambit",
    profile="paper",
    parameters='{"C": 24, "refill": true, "vote": "weighted"}',
    question="What is 6 x 7?",
    epoch=2,
    worker="w1",
    created=1000.25,
    deadline=1600.25,
    started=1001.5,
    ended=None,
    cancel_requested=False,
    degraded=False,
    counts=COUNTS,
    usage=USAGE,
    outcome=None,
    failure=None,
)
OUTCOME = Outcome(
    "42", 3, 1.5, 0.75, "It is 42.", (VoteRecord("42", 1.5, (3, 4)), VoteRecord("41", 0.5, (5,)))
)


# ---- requests


def test_a_new_tree_holds_the_whole_search() -> None:
    request = reason_request()
    new = mapping.new_tree(REQUEST_ID, request.search, 1600.25, 100)

    assert (new.tree_id, new.model, new.policy, new.profile) == (REQUEST_ID, "tiny", "gambit", "tiny")
    assert (new.question, new.deadline) == ("What is 6 x 7?", 1600.25)
    assert mapping.search_of(new.search) == request.search
    assert '"answer_mode"' in new.search  # the names of the proto, for people who read the store


def test_the_largest_seed_survives() -> None:
    search = pb.Search(question="?", seed=2**64 - 1)

    assert mapping.search_of(mapping.new_tree(REQUEST_ID, search, 0, 100).search).seed == 2**64 - 1


def test_what_a_newer_release_has_added_is_ignored() -> None:
    search = mapping.search_of(
        '{"question": "?", "added_later": {"x": 1}, "answer_mode": "ANSWER_MODE_LATER"}'
    )

    assert search == pb.Search(question="?")


def digest(request: pb.ReasonRequest) -> str:
    return mapping.new_tree(request.request_id, request.search, 0, 100).digest


def test_a_digest_does_not_depend_on_the_order_of_parameters_nor_on_the_call() -> None:
    one, two = reason_request(), reason_request()
    two.search.ClearField("parameters")
    two.search.parameters.update(dict(reversed(list(dict(one.search.parameters).items()))))
    two.cancel_on_disconnect = True

    assert digest(one) == digest(two)


@pytest.mark.parametrize(
    "field", ["question", "policy", "parameters", "sampling", "budgets", "seed", "answer_regex", "scorer"]
)
def test_a_digest_depends_on_every_field_of_the_search(field: str) -> None:
    changed = reason_request()
    changed.search.ClearField(field)

    assert digest(changed) != digest(reason_request())


def test_the_question_shown_is_the_last_of_the_user_and_cut() -> None:
    talk = pb.Search(
        conversation=pb.Conversation(
            messages=[
                pb.ChatMessage(role="user", content="first"),
                pb.ChatMessage(role="assistant", content="answer"),
                pb.ChatMessage(role="user", content="second" * 100),
            ]
        )
    )

    assert mapping.new_tree(REQUEST_ID, talk, 0, 100).question == ("second" * 100)[:200]


# ---- trees


def test_every_state_has_its_name_on_the_wire() -> None:
    assert set(mapping.TREE_STATES.values()) == set(pb.TreeState.keys()[1:])
    assert set(mapping.NODE_STATES.values()) == set(pb.NodeState.keys()[1:])


def test_a_running_tree() -> None:
    tree = mapping.tree(RECORD, None)

    assert (tree.name, tree.state) == (f"trees/{REQUEST_ID}", pb.TREE_STATE_RUNNING)
    assert dict(tree.parameters) == {"C": 24, "refill": True, "vote": "weighted"}
    assert tree.counts == pb.TreeCounts(**COUNTS)
    assert tree.usage == pb.TokenUsage(**USAGE)
    assert (tree.create_time.ToMilliseconds(), tree.start_time.ToMilliseconds()) == (1_000_250, 1_001_500)
    assert (tree.deadline.ToMilliseconds(), tree.worker, tree.epoch) == (1_600_250, "w1", 2)
    assert [f for f in ("end_time", "result", "error") if tree.HasField(f)] == []


def test_a_tree_that_has_succeeded_has_its_result() -> None:
    record = dataclasses.replace(RECORD, state=TreeState.SUCCEEDED, ended=1010.0)
    record = dataclasses.replace(record, scorer="mlp", scorer_mismatch="boundary_rule is a, not b")
    tree = mapping.tree(record, OUTCOME)

    assert tree.end_time.ToMilliseconds() == 1_010_000
    assert tree.result == mapping.result(record, OUTCOME)
    assert tree.result == pb.Result(
        name=f"trees/{REQUEST_ID}",
        state=pb.TREE_STATE_SUCCEEDED,
        answer_state=pb.ANSWER_STATE_ANSWERED,
        answer=pb.Answer(text="42", weight=1.5, share=0.75, node=3, final_text="It is 42."),
        votes=[pb.Vote(answer="42", weight=1.5, nodes=[3, 4]), pb.Vote(answer="41", weight=0.5, nodes=[5])],
        counts=pb.TreeCounts(**COUNTS),
        usage=pb.TokenUsage(**USAGE),
        elapsed=mapping.duration(9.75),
        queued=mapping.duration(1.25),
        policy="gambit",
        scorer="mlp",
        scorer_mismatch="boundary_rule is a, not b",
    )


def test_an_answer_that_is_an_empty_text_is_an_answer() -> None:
    record = dataclasses.replace(RECORD, state=TreeState.SUCCEEDED, ended=1010.0, degraded=True)
    result = mapping.result(record, Outcome("", 1, 1.0, 1.0))

    assert result.answer_state == pb.ANSWER_STATE_ANSWERED
    assert result.HasField("answer")
    assert result.degraded


def test_no_answer_and_a_tree_cancelled_in_the_queue() -> None:
    none = mapping.result(
        dataclasses.replace(RECORD, state=TreeState.SUCCEEDED, ended=1010.0),
        Outcome(None, ended_by="deadline"),
    )
    early = mapping.result(
        dataclasses.replace(RECORD, state=TreeState.CANCELLED, started=None, ended=1002.25, parameters=""),
        None,
    )

    assert (none.answer_state, none.ended_by) == (pb.ANSWER_STATE_NO_ANSWER, "deadline")
    assert not none.HasField("answer")
    assert early.answer_state == pb.ANSWER_STATE_NO_ANSWER
    assert early.elapsed == early.queued == mapping.duration(2.0)


def test_a_failure_is_given_whole() -> None:
    failure = Failure(3, "INVALID_FIELD", "bad", (("search.parameters.K", "at most 12"),))
    record = dataclasses.replace(RECORD, state=TreeState.FAILED, ended=1002.0, failure=failure)
    tree = mapping.tree(record, None)

    assert not tree.HasField("result")
    assert tree.error == pb.TreeError(
        code=3,
        reason="INVALID_FIELD",
        message="bad",
        field_violations=[pb.FieldViolation(field="search.parameters.K", description="at most 12")],
    )


def test_what_was_left_out_of_a_result_is_said() -> None:
    record = dataclasses.replace(RECORD, state=TreeState.SUCCEEDED, ended=1010.0)

    assert mapping.result(record, dataclasses.replace(OUTCOME, abridged=True)).abridged
    assert not mapping.result(record, OUTCOME).abridged


def test_a_thought_ends_where_its_own_text_and_what_comes_before_it_do() -> None:
    scored, unscored = Thought(20, 0.25, 0.5, 11), Thought(30, text_end=16)

    assert mapping.thought(3, scored, 100) == pb.Thought(
        position=20, score=0.25, confidence=0.5, text_end=111, node=3
    )
    assert mapping.thought(1, unscored, 0) == pb.Thought(position=30, text_end=16, node=1)
    assert not mapping.thought(1, unscored, 0).HasField("score")


@pytest.mark.parametrize(
    ("draining", "state"), [(False, pb.WORKER_STATE_SERVING), (True, pb.WORKER_STATE_DRAINING)]
)
def test_a_worker(draining: bool, state: pb.WorkerState.ValueType) -> None:
    record = WorkerRecord("w@host:1", 1000.5, draining, "tiny", 8, 3, 2, 1, 0.25, 1024, 64, "mlp")

    assert mapping.worker(record) == pb.Worker(
        name="workers/w@host:1",
        state=state,
        model="tiny",
        slots=8,
        free_slots=3,
        waiting_traces=2,
        trees=1,
        kv_use=0.25,
        max_context=1024,
        max_capacity=64,
        scorer="mlp",
        last_seen=mapping.timestamp(1000.5),
    )


def test_nodes() -> None:
    record = NodeRecord(
        node=3,
        state=NodeState.FINISHED,
        parent=2,
        branch_position=40,
        mean_score=0.0,
        thoughts=4,
        unique_tokens=10,
        total_tokens=50,
        finish_reason="stop",
        finish_order=1,
        answer="42",
        winning=True,
        evictions=1,
    )
    root = dataclasses.replace(record, node=1, parent=None, branch_position=0, mean_score=None, answer=None)

    branch = mapping.node(REQUEST_ID, record)
    assert (branch.name, branch.number, branch.parent) == (f"trees/{REQUEST_ID}/nodes/3", 3, 2)
    assert branch.HasField("mean_score")  # a score of zero is a score
    assert (branch.thoughts, branch.unique_tokens, branch.total_tokens) == (4, 10, 50)
    assert (branch.finish_reason, branch.answer, branch.winning) == ("stop", "42", True)
    first = mapping.node(REQUEST_ID, root)
    assert [f for f in ("parent", "mean_score") if first.HasField(f)] == []
    assert first.answer == ""


# ---- events


def event(kind: str, **fields: str) -> pb.TreeEvent:
    stored = Event("1700000000123-4", 1_700_000_000.123, kind, {k.rstrip("_"): v for k, v in fields.items()})
    return mapping.event(REQUEST_ID, stored)


def test_an_event_keeps_its_place_and_time() -> None:
    mapped = event("tree", to="running", from_="queued", reason="assigned", worker="w1", epoch="1")

    assert (mapped.event_id, mapped.time.ToMilliseconds()) == ("1700000000123-4", 1_700_000_000_123)
    assert mapped.tree == pb.TreeTransition(
        name=f"trees/{REQUEST_ID}", state=pb.TREE_STATE_RUNNING, reason="assigned"
    )


def test_transitions_of_nodes() -> None:
    root = event("node", node="1", to="pending").node
    branch = event("node", node="9", to="pending", parent="2").node
    moved = event("node", node="9", from_="live", to="ghost", reason="pressure").node

    assert root == pb.NodeTransition(node=1, to=pb.NODE_STATE_PENDING)
    assert not root.HasField("parent")
    assert branch == pb.NodeTransition(node=9, to=pb.NODE_STATE_PENDING, parent=2)
    assert moved == pb.NodeTransition(
        **{"node": 9, "from": pb.NODE_STATE_LIVE, "to": pb.NODE_STATE_GHOST, "reason": "pressure"}
    )


def test_rounds_have_the_fields_of_their_record() -> None:
    names = {field.name for field in dataclasses.fields(RoundRecord)}
    fields = dict.fromkeys(names, "7") | {"kv_use": "0.5000", "pruned": "1,2,30", "branched": ""}

    assert names == set(pb.Round.DESCRIPTOR.fields_by_name)
    assert event("round", **fields).round == pb.Round(
        number=7, thoughts=7, capacity_count=7, live=7, ghosts=7, kv_use=0.5, pruned=[1, 2, 30], branched=[]
    )


def test_progress_has_all_counters() -> None:
    fields = {name: str(value) for name, value in (COUNTS | USAGE).items()}

    assert event("progress", **fields).progress == pb.Progress(
        counts=pb.TreeCounts(**COUNTS), usage=pb.TokenUsage(**USAGE)
    )
