"""Batches of a running tree: applied whole, once, in order, by the owner, as the state machine allows."""

from __future__ import annotations

import itertools

import pytest

from tests.integration.tree_store.helpers import (
    CANCELLED,
    FINISHED,
    GHOST,
    LEASE,
    LIVE,
    PENDING,
    PRUNED,
    WAY_TO,
    Client,
    assert_accounted,
    created,
    running,
    snapshot,
    spawn,
)
from tree_store.errors import (
    NodeNotFoundError,
    SequenceGapError,
    StaleEpochError,
    TransitionRefusedError,
)
from tree_store.keys import TreeKeys
from tree_store.model import (
    NODE_TRANSITIONS,
    Batch,
    NodeChange,
    NodeContent,
    NodeState,
    Outcome,
    RoundRecord,
    Thought,
    TreeState,
)
from tree_store.store import TreeStore


async def test_what_a_batch_brings_can_be_read_back(store: TreeStore) -> None:
    tree_id, epoch = await running(store)
    first = NodeChange(
        node=1,
        before=None,
        path=(PENDING, LIVE),
        mean_score=1 / 3,
        fields={"thoughts": "1", "unique_tokens": "3", "total_tokens": "3"},
        tokens=(5, 2**31 - 1, 0),
        text="Größe ≈ 3\n\n",
        thoughts=(Thought(3, 0.5),),
        confidences=(7.5, 0.25, 16.0),
        history=b"\x00\xff\r\n",
    )
    second = NodeChange(
        node=1,
        before=LIVE,
        path=(FINISHED,),
        fields={"finish_reason": "stop", "finish_order": "1", "answer": "", "winning": "1"},
        tokens=(7,),
        text="🙂",
        thoughts=(Thought(4, None, 0.25),),
        confidences=(1.5,),
        history=b"\x80\x00\x01\x02",
    )

    await store.commit(
        tree_id, epoch, 1, Batch(nodes=(first,), policy_state='{"n": 1}', fields={"prompt": "9"})
    )
    await store.commit(tree_id, epoch, 2, Batch(nodes=(second,)))

    assert await store.contents(tree_id, [1]) == [
        NodeContent(
            (5, 2**31 - 1, 0, 7),
            "Größe ≈ 3\n\n🙂",
            (Thought(3, 0.5), Thought(4, None, 0.25)),
            (7.5, 0.25, 16.0, 1.5),
            b"\x00\xff\r\n\x80\x00\x01\x02",
        )
    ]
    [node] = await store.nodes(tree_id)
    assert (node.state, node.mean_score, node.thoughts, node.unique_tokens) == (FINISHED, 1 / 3, 1, 3)
    assert (node.finish_reason, node.finish_order, node.answer, node.winning) == ("stop", 1, "", True)
    assert await store.policy_state(tree_id) == '{"n": 1}'
    record = await store.tree(tree_id)
    assert (record.usage["prompt"], record.counts["thoughts"]) == (9, 2)


async def test_a_person_can_read_the_keys(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    record = RoundRecord(1, 200, 2, 2, 0, 0.875, pruned=(1,), branched=(2,))
    await store.commit(
        tree_id,
        epoch,
        1,
        Batch(
            nodes=(
                created(1, PENDING, LIVE, GHOST, mean_score=0.25, reason="evicted"),
                created(2, PENDING),
                created(3, PENDING, parent=2, branch_position=40, reason="exchange"),
            ),
            rounds=(record,),
            progress=True,
        ),
    )

    keys = TreeKeys(tree_id)
    assert keys.meta == f"tb:{{{tree_id}}}:meta"
    meta = client.hgetall(keys.meta)
    assert (meta["state"], meta["worker"], meta["ghost"], meta["evictions"]) == (
        "running",
        "worker",
        "1",
        "1",
    )
    assert client.zrange(keys.state(GHOST), 0, -1, withscores=True) == [("1", 0.25)]
    assert client.zrange(keys.state(PENDING), 0, -1, withscores=True) == [("2", -1), ("3", -1)]
    assert client.hgetall(keys.node(3)) == {
        "state": "pending",
        "parent": "2",
        "branch_position": "40",
        "unique_tokens": "0",
        "total_tokens": "40",
        "thoughts": "0",
        "evictions": "0",
    }
    round_fields = {
        "number": "1",
        "thoughts": "200",
        "capacity_count": "2",
        "live": "2",
        "ghosts": "0",
        "kv_use": "0.8750",
        "pruned": "1",
        "branched": "2",
    }
    assert [fields for _, fields in client.xrange(keys.rounds)] == [round_fields]
    entries = [fields for _, fields in client.xrange(keys.events)][2:]
    assert entries[:6] == [
        {"type": "node", "node": "1", "to": "pending"},
        {"type": "node", "node": "1", "from": "pending", "to": "live"},
        {"type": "node", "node": "1", "from": "live", "to": "ghost", "reason": "evicted"},
        {"type": "node", "node": "2", "to": "pending"},
        {"type": "node", "node": "3", "to": "pending", "parent": "2", "reason": "exchange"},
        {"type": "round", **round_fields},
    ]
    assert entries[6]["type"] == "progress"
    assert (entries[6]["nodes"], entries[6]["rounds"], entries[6]["generated"]) == ("3", "1", "0")
    assert_accounted(client, tree_id)


async def test_all_rounds_of_a_batch_are_kept_in_order(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    rounds = tuple(RoundRecord(n, 100 * n, 2, 2, 0, 0.5, (), ()) for n in (1, 2, 3))

    await store.commit(tree_id, epoch, 1, Batch(rounds=rounds[:2]))
    await store.commit(tree_id, epoch, 2, Batch(rounds=rounds[2:]))

    stored = [fields["thoughts"] for _, fields in client.xrange(TreeKeys(tree_id).rounds)]
    told = [e.fields["thoughts"] for e in await store.events(tree_id) if e.kind == "round"]
    assert stored == told == ["100", "200", "300"]
    assert (await store.tree(tree_id)).counts["rounds"] == 3
    assert_accounted(client, tree_id)


async def test_a_batch_sent_twice_is_applied_once(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    batch = Batch(nodes=(created(1, PENDING, LIVE, tokens=(1, 2), text="x", thoughts=(Thought(2, 0.5),)),))
    await store.commit(tree_id, epoch, 1, batch)
    before = snapshot(client, tree_id)

    await store.commit(tree_id, epoch, 1, batch)
    await store.commit(tree_id, epoch, 1, Batch(fields={"generated": "7"}))

    assert snapshot(client, tree_id) == before


async def test_a_gap_is_refused(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE))
    before = snapshot(client, tree_id)

    with pytest.raises(SequenceGapError, match="seq 3 follows 1"):
        await store.commit(tree_id, epoch, 3, Batch())

    assert snapshot(client, tree_id) == before


async def test_an_owner_that_lost_the_tree_changes_nothing(store: TreeStore, client: Client) -> None:
    tree_id, old = await running(store)
    await store.commit(tree_id, old, 1, spawn(LIVE))
    await store.requeue(tree_id, old)
    with pytest.raises(StaleEpochError):
        await store.commit(tree_id, old, 2, spawn(LIVE))
    new = (await store.assign(tree_id, "another", 30)).epoch
    before = snapshot(client, tree_id)

    # seq 1 would be acknowledged as a repeat if only seq were looked at
    for epoch, seq in ((old, 1), (old, 2), (new + 1, 1)):
        with pytest.raises(StaleEpochError):
            await store.commit(tree_id, epoch, seq, Batch(nodes=(NodeChange(1, LIVE, (PENDING,)),)))

    assert snapshot(client, tree_id) == before


@pytest.mark.parametrize(("start", "to"), list(itertools.product(NodeState, repeat=2)))
async def test_nodes_make_the_steps_of_the_model_and_no_other(
    store: TreeStore, client: Client, start: NodeState, to: NodeState
) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(start))
    allowed = to in NODE_TRANSITIONS[start]
    step = Batch(nodes=(NodeChange(1, start, (to,)),))

    if allowed:
        await store.commit(tree_id, epoch, 2, step)
    else:
        with pytest.raises(TransitionRefusedError, match=f"no step to {to}") as refused:
            await store.commit(tree_id, epoch, 2, step)
        assert (refused.value.node, refused.value.state) == (1, start)

    [node] = await store.nodes(tree_id)
    assert node.state is (to if allowed else start)
    assert node.evictions == WAY_TO[start].count(GHOST) + (allowed and to is GHOST)
    assert_accounted(client, tree_id)


@pytest.mark.parametrize(
    "bad",
    [
        NodeChange(1, PENDING, (LIVE,)),  # it is live
        NodeChange(1, None, (PENDING,)),  # it exists
        NodeChange(2, LIVE, (PRUNED,)),  # it does not exist
        NodeChange(2, None, ()),  # a new node without a state
        NodeChange(2, None, (LIVE,)),  # … that does not begin with pending
        NodeChange(3, None, (PENDING,)),  # leaves a gap in the numbers
        NodeChange(0, None, (PENDING,)),  # numbers count from 1
        NodeChange(2, None, (PENDING,), parent=2),
        NodeChange(2, None, (PENDING,), parent=3),
        NodeChange(2, None, (PENDING,), parent=0),
        NodeChange(1, LIVE, (FINISHED, PRUNED)),
    ],
)
async def test_one_bad_change_refuses_the_whole_batch(
    store: TreeStore, client: Client, bad: NodeChange
) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE))
    before = snapshot(client, tree_id)
    good = NodeChange(1, LIVE, (GHOST,), text="x") if bad.node != 1 else created(2, PENDING)

    with pytest.raises(TransitionRefusedError) as refused:
        await store.commit(
            tree_id, epoch, 2, Batch(nodes=(good, bad), policy_state="{}", fields={"generated": "1"})
        )

    assert refused.value.node == bad.node
    assert snapshot(client, tree_id) == before


async def test_a_node_is_changed_once_in_a_batch(store: TreeStore) -> None:
    tree_id, epoch = await running(store)

    with pytest.raises(TransitionRefusedError, match="twice"):
        await store.commit(
            tree_id, epoch, 1, Batch(nodes=(created(1, PENDING), NodeChange(1, PENDING, (LIVE,))))
        )


async def test_a_mean_score_stays_until_there_is_a_new_one(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, Batch(nodes=(created(1, PENDING, LIVE, mean_score=0.75),)))

    await store.commit(tree_id, epoch, 2, Batch(nodes=(NodeChange(1, LIVE, (PRUNED,)),)))

    assert client.zscore(TreeKeys(tree_id).state(PRUNED), "1") == 0.75
    assert [n.mean_score for n in await store.nodes(tree_id)] == [0.75]


async def test_a_tournament_over_4096_traces_is_one_call(store: TreeStore, client: Client) -> None:
    tree_id, epoch = await running(store)
    capacity, exchanged = 4096, 1024
    roots = tuple(created(n, PENDING, LIVE, mean_score=n / capacity) for n in range(1, capacity + 1))
    await store.commit(tree_id, epoch, 1, Batch(nodes=roots))
    lowest = range(1, exchanged + 1)
    parents = range(capacity - exchanged + 1, capacity + 1)
    tournament = Batch(
        nodes=(
            *(NodeChange(n, LIVE, (PRUNED,), reason="exchange") for n in lowest),
            *(
                created(capacity + i, PENDING, parent=parent, branch_position=9, mean_score=0.5)
                for i, parent in enumerate(parents, start=1)
            ),
        ),
        rounds=(RoundRecord(1, 200, capacity, capacity, 0, 0.5, tuple(lowest), tuple(parents)),),
        policy_state="{}",
    )

    await store.commit(tree_id, epoch, 2, tournament)

    counts = (await store.tree(tree_id)).counts
    assert (counts["nodes"], counts["roots"], counts["branches"]) == (5120, 4096, 1024)
    assert (counts["live"], counts["pending"], counts["pruned"]) == (3072, 1024, 1024)
    worst = client.zrange(TreeKeys(tree_id).state(LIVE), 0, 0, withscores=True)
    assert worst == [("1025", pytest.approx(1025 / capacity))]
    last = await store.nodes(tree_id, first=5119, count=50)
    assert [(n.node, n.parent) for n in last] == [(5119, 4095), (5120, 4096)]


async def test_nodes_come_in_pages(store: TreeStore) -> None:
    tree_id, epoch = await running(store)
    await store.commit(tree_id, epoch, 1, spawn(LIVE, GHOST, CANCELLED, PENDING, LIVE))

    pages = [await store.nodes(tree_id, first, 2) for first in (1, 3, 5, 7)]

    assert [[n.node for n in page] for page in pages] == [[1, 2], [3, 4], [5], []]


async def test_the_contents_of_many_nodes_come_in_the_order_asked_for(store: TreeStore) -> None:
    tree_id, epoch = await running(store)
    nodes = tuple(created(n, PENDING, LIVE, tokens=(n, n), text=f"{n}") for n in range(1, 301))
    await store.commit(tree_id, epoch, 1, Batch(nodes=nodes))

    asked = [300, *range(1, 300)]
    contents = await store.contents(tree_id, asked)

    assert contents == [NodeContent((n, n), f"{n}", ()) for n in asked]
    assert await store.contents(tree_id, []) == []


async def test_a_tree_says_that_it_is_degraded_while_it_runs_and_at_its_end(store: TreeStore) -> None:
    tree_id, epoch = await running(store)
    assert not (await store.tree(tree_id)).degraded

    await store.commit(tree_id, epoch, 1, Batch(fields={"degraded": "1"}))
    assert (await store.tree(tree_id)).degraded
    await store.requeue(tree_id, epoch)
    assert (await store.tree(tree_id)).degraded

    epoch = (await store.assign(tree_id, "another", LEASE)).epoch
    outcome = Outcome("7", degraded=False)
    await store.finish(tree_id, epoch, 1, Batch(), TreeState.SUCCEEDED, outcome, None)
    record = await store.tree(tree_id)
    assert (record.degraded, record.outcome) == (False, outcome)


async def test_a_node_that_is_not_there_is_not_found(store: TreeStore) -> None:
    tree_id, _ = await running(store)

    with pytest.raises(NodeNotFoundError):
        await store.contents(tree_id, [1])
    assert await store.policy_state(tree_id) is None
