"""What the tests of the tree store share."""

from __future__ import annotations

import time
import uuid
from typing import Any

from redis import Redis

from tree_store.keys import TreeKeys
from tree_store.model import (
    COUNTING,
    Batch,
    Failure,
    NewTree,
    NodeChange,
    NodeRecord,
    NodeState,
    Outcome,
    TreeState,
)
from tree_store.store import TreeStore

Client = Redis

PENDING, LIVE, HELD, GHOST = NodeState.PENDING, NodeState.LIVE, NodeState.HELD, NodeState.GHOST
FINISHED, PRUNED, CANCELLED = NodeState.FINISHED, NodeState.PRUNED, NodeState.CANCELLED

DAY = 24 * 3600
FAILURE = Failure(3, "BAD_PARAMETER", "K is too large", (("search.parameters.K", "must be in 0..8"),))
NO_ANSWER = Outcome(answer=None)
LEASE = 30.0

# The steps that lead a new node into a state.
WAY_TO: dict[NodeState, tuple[NodeState, ...]] = {
    PENDING: (PENDING,),
    LIVE: (PENDING, LIVE),
    HELD: (PENDING, LIVE, HELD),
    GHOST: (PENDING, LIVE, GHOST),
    FINISHED: (PENDING, LIVE, FINISHED),
    PRUNED: (PENDING, LIVE, PRUNED),
    CANCELLED: (PENDING, CANCELLED),
}


def new_tree(tree_id: str | None = None, *, digest: str = "digest", seconds: float = 60.0) -> NewTree:
    """A tree to create whose deadline passes in `seconds`."""
    return NewTree(
        tree_id=tree_id or str(uuid.uuid4()),
        search='{"question": "What is 3 + 4?"}',
        digest=digest,
        model="tiny",
        policy="gambit",
        profile="tiny",
        question="What is 3 + 4?",
        deadline=time.time() + seconds,
    )


async def queued(store: TreeStore, *, seconds: float = 60.0) -> str:
    """A tree in the queue."""
    new = new_tree(seconds=seconds)
    assert await store.create(new)
    await store.enqueue(new.tree_id)
    return new.tree_id


async def running(store: TreeStore, *, lease: float = LEASE) -> tuple[str, int]:
    """A running tree and its epoch."""
    tree_id = await queued(store)
    assigned = await store.assign(tree_id, "worker", lease)
    return tree_id, assigned.epoch


async def in_state(store: TreeStore, state: TreeState) -> str:
    """A tree in this state."""
    if state is TreeState.QUEUED:
        return await queued(store)
    if state is TreeState.EXPIRED:
        tree_id = await queued(store, seconds=-1)
        assert await store.expire(tree_id)
        return tree_id
    tree_id, epoch = await running(store)
    if state is not TreeState.RUNNING:
        outcome = NO_ANSWER if state is TreeState.SUCCEEDED else None
        failure = FAILURE if state is TreeState.FAILED else None
        await store.finish(tree_id, epoch, 1, Batch(), state, outcome, failure)
    return tree_id


def created(node: int, *path: NodeState, **more: Any) -> NodeChange:
    """A new node that walks this path."""
    return NodeChange(node, None, path, **more)


def spawn(*states: NodeState) -> Batch:
    """New roots, one in each of these states."""
    return Batch(nodes=tuple(created(n, *WAY_TO[state]) for n, state in enumerate(states, start=1)))


def cancel_open(nodes: list[NodeRecord]) -> Batch:
    """Ends every node that still counts."""
    return Batch(nodes=tuple(NodeChange(n.node, n.state, (CANCELLED,)) for n in nodes if n.state in COUNTING))


def keys_of(client: Client, tree_id: str) -> list[str]:
    return sorted(client.scan_iter(f"tb:{{{tree_id}}}:*", count=1000))


def snapshot(client: Client, tree_id: str) -> dict[str, object]:
    """Everything that is stored of a tree."""
    read = {
        "hash": client.hgetall,
        "zset": lambda key: client.zrange(key, 0, -1, withscores=True),
        "stream": client.xrange,
        "string": client.get,
    }
    return {key: read[client.type(key)](key) for key in keys_of(client, tree_id)}


def assert_accounted(client: Client, tree_id: str) -> None:
    """What holds of any tree at any time: counters add up, the zsets partition the nodes, all keys expire."""
    keys, every_key = TreeKeys(tree_id), keys_of(client, tree_id)
    with client.pipeline(transaction=False) as pipeline:
        for state in NodeState:
            pipeline.zrange(keys.state(state), 0, -1)
        members = dict(zip(NodeState, pipeline.execute(), strict=True))
    indexed = {int(node): state for state, nodes in members.items() for node in nodes}
    with client.pipeline(transaction=False) as pipeline:
        for node in sorted(indexed):
            pipeline.hget(keys.node(node), "state")
        states = dict(zip(sorted(indexed), pipeline.execute(), strict=True))
    with client.pipeline(transaction=False) as pipeline:
        for key in every_key:
            pipeline.pttl(key)
        left = dict(zip(every_key, pipeline.execute(), strict=True))
    meta = client.hgetall(keys.meta)
    assert int(meta["nodes"]) == int(meta["roots"]) + int(meta["branches"])
    assert {state: len(nodes) for state, nodes in members.items()} == {s: int(meta[s]) for s in NodeState}
    assert states == indexed
    assert list(states) == list(range(1, int(meta["nodes"]) + 1))
    assert min(left.values()) > 0, f"{min(left, key=left.__getitem__)} never expires"
