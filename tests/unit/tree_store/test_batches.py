from __future__ import annotations

import json
import math

import pytest

from tree_store.batches import encode_batch, ending
from tree_store.keys import TreeKeys
from tree_store.model import Batch, Failure, NodeChange, NodeState, Outcome, Thought, TreeState

KEYS = TreeKeys("t")
LIVE, PENDING = NodeState.LIVE, NodeState.PENDING
FAILURE = Failure(3, "BAD", "bad")


def test_keys_and_appended_values_come_in_the_same_order() -> None:
    batch = Batch(
        nodes=(
            NodeChange(1, LIVE, tokens=(1,), thoughts=(Thought(1, 0.5),)),
            NodeChange(2, None, (PENDING,), parent=1, branch_position=1),
            NodeChange(3, LIVE, text="é"),
        ),
        policy_state="{}",
    )

    names, arguments = encode_batch(KEYS, 2, 7, batch)

    expected = [KEYS.node(1), KEYS.tokens(1), KEYS.thoughts(1), KEYS.node(2), KEYS.node(3), KEYS.text(3)]
    assert names[len(KEYS.of_batch()) :] == expected
    assert (arguments[0], arguments[1], arguments[3]) == (2, 7, "{}")
    assert [len(bytes(piece, "utf-8") if isinstance(piece, str) else piece) for piece in arguments[4:]] == [
        4,
        16,
        2,
    ]
    changes = json.loads(str(arguments[2]))["nodes"]
    assert [change["appends"] for change in changes] == [["tokens", "thoughts"], [], ["text"]]


def test_a_mean_score_keeps_all_its_digits() -> None:
    _, arguments = encode_batch(KEYS, 1, 1, Batch(nodes=(NodeChange(1, LIVE, mean_score=1 / 3),)))

    assert json.loads(str(arguments[2]))["nodes"][0]["mean_score"] == "0.3333333333333333"


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_mean_score_that_is_no_number_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="node 4"):
        encode_batch(KEYS, 1, 1, Batch(nodes=(NodeChange(4, LIVE, mean_score=score),)))


@pytest.mark.parametrize("field", ["state", "epoch", "live", "expires", "seq", "thoughts"])
def test_what_the_store_keeps_itself_cannot_be_set(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        encode_batch(KEYS, 1, 1, Batch(fields={field: "1"}))


@pytest.mark.parametrize("field", ["state", "mean_score", "evictions"])
def test_what_the_store_keeps_of_a_node_cannot_be_set(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        encode_batch(KEYS, 1, 1, Batch(nodes=(NodeChange(1, LIVE, fields={field: "1"}),)))


def test_batches_count_from_one() -> None:
    with pytest.raises(ValueError, match="seq 0"):
        encode_batch(KEYS, 1, 0, Batch())


@pytest.mark.parametrize(
    ("state", "outcome", "failure"),
    [
        (TreeState.RUNNING, None, None),
        (TreeState.QUEUED, None, None),
        (TreeState.SUCCEEDED, None, None),
        (TreeState.SUCCEEDED, Outcome("1"), FAILURE),
        (TreeState.FAILED, Outcome("1"), None),
        (TreeState.EXPIRED, None, None),
        (TreeState.CANCELLED, None, FAILURE),
    ],
)
def test_an_end_that_does_not_fit_its_state_is_refused(
    state: TreeState, outcome: Outcome | None, failure: Failure | None
) -> None:
    with pytest.raises(ValueError, match=r"state|outcome|failure"):
        ending(state, outcome, failure)
