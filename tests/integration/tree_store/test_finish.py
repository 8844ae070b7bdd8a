"""The end of a running tree: with its last batch, accounted for to the last node, readable for a day."""

from __future__ import annotations

import pytest

from tests.integration.tree_store.helpers import (
    CANCELLED,
    DAY,
    FAILURE,
    FINISHED,
    GHOST,
    HELD,
    LIVE,
    NO_ANSWER,
    PENDING,
    PRUNED,
    Client,
    assert_accounted,
    cancel_open,
    keys_of,
    running,
    snapshot,
    spawn,
)
from tree_store.errors import OpenNodesError, SequenceGapError, StaleEpochError
from tree_store.keys import TreeKeys
from tree_store.model import Batch, Failure, NodeChange, NodeState, Outcome, Thought, TreeState, VoteRecord
from tree_store.store import TreeStore

OUTCOME = Outcome(
    answer="29",
    node=1,
    weight=1.78,
    share=1.78 / 3.21,
    final_text="The answer is \\boxed{29}.",
    votes=(VoteRecord("29", 1.78, (1, 3)), VoteRecord("52", 1.43, (2, 5))),
    ended_by="tokens",
    degraded=True,
)


@pytest.mark.parametrize(
    ("state", "outcome", "failure"),
    [
        (TreeState.SUCCEEDED, OUTCOME, None),
        (TreeState.SUCCEEDED, NO_ANSWER, None),
        (TreeState.CANCELLED, None, None),
        (TreeState.CANCELLED, OUTCOME, None),
        (TreeState.FAILED, None, FAILURE),
    ],
)
async def test_a_tree_ends_as_it_is_told(
    store: TreeStore, client: Client, state: TreeState, outcome: Outcome | None, failure: Failure | None
) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE, PENDING, HELD, GHOST, FINISHED, PRUNED))
    last = cancel_open(await store.nodes(tree_id))

    await store.finish(tree_id, epoch, 2, last, state, outcome, failure)

    record = await store.tree(tree_id)
    assert (record.state, record.outcome, record.failure) == (state, outcome, failure)
    assert await store.outcome(tree_id) == outcome
    assert record.ended is not None
    counts = record.counts
    assert counts["nodes"] == counts["finished"] + counts["pruned"] + counts["cancelled"] == 6
    assert_accounted(client, tree_id)
    end = (await store.events(tree_id))[-1]
    assert (end.kind, end.fields["from"], end.fields["to"]) == ("tree", "running", state)


@pytest.mark.parametrize("state", [TreeState.SUCCEEDED, TreeState.CANCELLED, TreeState.FAILED])
@pytest.mark.parametrize("left", [PENDING, LIVE, HELD, GHOST])
async def test_a_tree_does_not_end_with_a_node_unaccounted_for(
    store: TreeStore, client: Client, state: TreeState, left: NodeState
) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(FINISHED, left, LIVE))
    before = snapshot(client, tree_id)
    last = Batch(nodes=(NodeChange(3, LIVE, (CANCELLED,)),))
    outcome = OUTCOME if state is TreeState.SUCCEEDED else None
    failure = FAILURE if state is TreeState.FAILED else None

    with pytest.raises(OpenNodesError, match="2 of 3"):
        await store.finish(tree_id, epoch, 2, last, state, outcome, failure)

    assert snapshot(client, tree_id) == before


async def test_an_end_told_twice_is_acknowledged_and_another_refused(
    store: TreeStore, client: Client
) -> None:
    tree_id, epoch = await running(store)
    await store.finish(tree_id, epoch, 1, Batch(), TreeState.SUCCEEDED, OUTCOME, None)
    before = snapshot(client, tree_id)

    await store.finish(tree_id, epoch, 1, Batch(), TreeState.SUCCEEDED, OUTCOME, None)
    with pytest.raises(StaleEpochError):
        await store.finish(tree_id, epoch, 2, Batch(), TreeState.FAILED, None, FAILURE)
    with pytest.raises(StaleEpochError):
        await store.commit(tree_id, epoch, 2, Batch())

    assert snapshot(client, tree_id) == before


async def test_only_the_owner_ends_a_tree_and_in_order(store: TreeStore) -> None:
    tree_id, epoch = await running(store)

    with pytest.raises(StaleEpochError):
        await store.finish(tree_id, epoch - 1, 1, Batch(), TreeState.SUCCEEDED, OUTCOME, None)
    with pytest.raises(SequenceGapError):
        await store.finish(tree_id, epoch, 2, Batch(), TreeState.SUCCEEDED, OUTCOME, None)

    assert (await store.tree(tree_id)).state is TreeState.RUNNING


async def test_an_ended_tree_is_kept_for_a_day(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    nodes = tuple(
        NodeChange(n, None, (PENDING, LIVE, FINISHED), tokens=(1,), text="x", thoughts=(Thought(1, 0.5),))
        for n in range(1, 301)
    )
    await store.commit(tree_id, epoch, 1, Batch(nodes=nodes, policy_state="{}"))
    created = [client.pttl(key) for key in keys_of(client, tree_id)]
    assert min(created) > DAY * 1000  # the deadline is a minute away

    await store.finish(tree_id, epoch, 2, Batch(), TreeState.SUCCEEDED, OUTCOME, None)

    left = {key: client.pttl(key) for key in keys_of(client, tree_id)}
    assert len(left) == len(created) + 1 == 4 * 300 + 5  # with the outcome
    assert all(DAY * 1000 - 10_000 < ttl <= DAY * 1000 for ttl in left.values())
    assert TreeKeys(tree_id).text(300) in left
