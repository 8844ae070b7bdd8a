"""Random histories, valid and invalid: the store accepts what a model of the transition tables does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.integration.tree_store.helpers import (
    CANCELLED,
    COUNTING,
    GHOST,
    LEASE,
    NO_ANSWER,
    PENDING,
    Client,
    assert_accounted,
    queued,
)
from tree_store.errors import (
    OpenNodesError,
    SequenceGapError,
    StaleEpochError,
    TransitionRefusedError,
)
from tree_store.keys import UNSCORED, TreeKeys
from tree_store.model import NODE_TRANSITIONS, Batch, NodeChange, NodeState, Thought, TreeState
from tree_store.store import TreeStore

T = TypeVar("T")
SEEDS = st.integers(0, 2**32)
Step = tuple[str, str | None, str]  # node number or "tree", from, to


@dataclass
class ModelNode:
    state: NodeState
    parent: int | None
    mean_score: float | None = None
    thoughts: int = 0
    evictions: int = 0


@dataclass
class ModelTree:
    """What the store should hold."""

    state: TreeState = TreeState.QUEUED
    epoch: int = 0
    seq: int = 0
    nodes: dict[int, ModelNode] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def allows(self, changes: tuple[NodeChange, ...]) -> bool:
        new = sorted(c.node for c in changes if c.before is None)
        numbers = [c.node for c in changes]
        return (
            len(set(numbers)) == len(numbers)
            and new == list(range(len(self.nodes) + 1, len(self.nodes) + 1 + len(new)))
            and all(self._allows_one(c) for c in changes)
        )

    def _allows_one(self, change: NodeChange) -> bool:
        known = self.nodes.get(change.node)
        if (known.state if known else None) is not change.before:
            return False
        steps = list(change.path)
        if change.before is None:
            if change.parent is not None and not 1 <= change.parent < change.node:
                return False
            if not steps or steps.pop(0) is not PENDING:
                return False
        state = change.before or PENDING
        for to in steps:
            if to not in NODE_TRANSITIONS[state]:
                return False
            state = to
        return True

    def apply(self, changes: tuple[NodeChange, ...]) -> None:
        for change in changes:
            node = self.nodes.setdefault(change.node, ModelNode(PENDING, change.parent))
            before = change.before
            for to in change.path:
                self.steps.append((str(change.node), before, to))
                before = node.state = to
                node.evictions += to is GHOST
            node.thoughts += len(change.thoughts)
            if change.mean_score is not None:
                node.mean_score = change.mean_score

    def move(self, to: TreeState) -> None:
        self.steps.append(("tree", self.state, to))
        self.state = to

    @property
    def open_nodes(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.state in COUNTING]


def random_changes(random: Random, tree: ModelTree) -> tuple[NodeChange, ...]:
    """Up to five changes; in half of the batches there is something wrong with one of them."""
    old = random.sample(sorted(tree.nodes), k=min(random.randint(0, 3), len(tree.nodes)))
    new = range(len(tree.nodes) + 1, len(tree.nodes) + 1 + random.randint(0, 2))
    made = [_right_change(random, number, tree.nodes[number].state) for number in old]
    made += [_right_change(random, number, None) for number in new]
    random.shuffle(made)
    if made and random.random() < 0.5:
        spoilt = random.randrange(len(made))
        made[spoilt : spoilt + 1] = _spoil(random, made[spoilt])
    return tuple(made)


def _right_change(random: Random, number: int, before: NodeState | None) -> NodeChange:
    path: list[NodeState] = [] if before else [PENDING]
    state = before or PENDING
    for _ in range(random.randint(0, 4)):
        if NODE_TRANSITIONS[state]:
            state = random.choice(sorted(NODE_TRANSITIONS[state]))
            path.append(state)
    return NodeChange(
        node=number,
        before=before,
        path=tuple(path),
        parent=random.choice([None, random.randint(1, number - 1)]) if number > 1 else None,
        mean_score=random.choice([None, random.random()]),
        thoughts=tuple(Thought(i, random.random()) for i in range(random.randint(0, 2))),
    )


def _spoil(random: Random, change: NodeChange) -> list[NodeChange]:
    """One thing made wrong, mostly; the model knows."""
    place = random.randint(0, len(change.path))
    path = (*change.path[:place], random.choice(list(NodeState)), *change.path[place:])
    return random.choice(
        [
            [replace(change, path=path)],
            [replace(change, path=change.path[1:])],
            [replace(change, before=random.choice([None, *NodeState]))],
            [replace(change, node=random.randint(0, change.node + 3))],
            [replace(change, parent=random.randint(0, change.node + 1))],
            [change, replace(change, path=())],
        ]
    )


class Histories(RuleBasedStateMachine):
    """One tree, one writer that also makes mistakes. traffic: counts what it did."""

    def __init__(self, url: str, client: Client, traffic: Counter[str]) -> None:
        super().__init__()
        self.traffic = traffic
        self.client = client
        self.loop = asyncio.new_event_loop()
        self.store = TreeStore.connect(url)
        self.model = ModelTree()

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(doing)

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()

    @initialize()
    def create(self) -> None:
        self.tree_id = self.run(queued(self.store))
        self.keys = TreeKeys(self.tree_id)
        self.model.steps.append(("tree", None, TreeState.QUEUED))
        self.assign()

    @rule()
    def assign(self) -> None:
        if self.model.state is not TreeState.QUEUED:
            with pytest.raises(TransitionRefusedError):
                self.run(self.store.assign(self.tree_id, "worker", LEASE))
            return
        self.model.move(TreeState.RUNNING)
        self.model.epoch += 1
        self.model.seq = 0
        assigned = self.run(self.store.assign(self.tree_id, "worker", LEASE))
        assert assigned.epoch == self.model.epoch

    @precondition(lambda self: self.model.state is TreeState.RUNNING)
    @rule(seed=SEEDS)
    def commit(self, seed: int) -> None:
        random = Random(seed)
        for _ in range(5):
            made = random_changes(random, self.model)
            allowed = self.model.allows(made)
            try:
                self.commit_next(1, made)
            except TransitionRefusedError:
                accepted = False
            else:
                accepted = True
                self.model.apply(made)
                self.model.seq += 1
            assert accepted == allowed, made
            self.traffic["accepted" if accepted else "refused"] += 1
            if self.model.seq and random.random() < 0.25:
                self.repeat(random.getrandbits(32))

    @precondition(lambda self: self.model.seq > 0)
    @rule(seed=SEEDS)
    def repeat(self, seed: int) -> None:
        random = Random(seed)
        self.commit_next(random.randint(1 - self.model.seq, 0), random_changes(random, self.model))
        self.traffic["repeated"] += 1

    @rule(seed=SEEDS)
    def write_what_is_not_due(self, seed: int) -> None:
        random = Random(seed)
        made = random_changes(random, self.model)
        running = self.model.state is TreeState.RUNNING
        with pytest.raises(SequenceGapError if running else StaleEpochError):
            self.commit_next(random.randint(2, 4), made)
        for epoch in (self.model.epoch - 1, self.model.epoch + 1):
            with pytest.raises(StaleEpochError):
                self.commit_next(random.choice([1 - self.model.seq, 1]), made, epoch)

    def commit_next(self, ahead: int, made: tuple[NodeChange, ...], epoch: int | None = None) -> None:
        epoch = self.model.epoch if epoch is None else epoch
        self.run(self.store.commit(self.tree_id, epoch, self.model.seq + ahead, Batch(nodes=made)))

    @precondition(lambda self: self.model.state is TreeState.RUNNING)
    @rule()
    def hand_back(self) -> None:
        self.run(self.store.requeue(self.tree_id, self.model.epoch))
        self.model.move(TreeState.QUEUED)

    @precondition(lambda self: self.model.state is TreeState.RUNNING and len(self.model.nodes) > 8)
    @rule(everyone=st.booleans())
    def finish(self, everyone: bool) -> None:
        ended = self.model.open_nodes if everyone else self.model.open_nodes[1:]
        last = tuple(NodeChange(n, self.model.nodes[n].state, (CANCELLED,)) for n in ended)
        ending = self.store.finish(
            self.tree_id,
            self.model.epoch,
            self.model.seq + 1,
            Batch(nodes=last),
            TreeState.SUCCEEDED,
            NO_ANSWER,
            None,
        )
        if len(ended) < len(self.model.open_nodes):
            with pytest.raises(OpenNodesError):
                self.run(ending)
            return
        self.run(ending)
        self.model.apply(last)
        self.model.move(TreeState.SUCCEEDED)
        self.model.seq += 1

    @precondition(lambda self: self.model.state is TreeState.QUEUED and len(self.model.nodes) > 8)
    @rule()
    def cancel_in_the_queue(self) -> None:
        # by state, as the store finds them
        ended = sorted(self.model.open_nodes, key=lambda n: list(NodeState).index(self.model.nodes[n].state))
        self.run(self.store.request_cancel(self.tree_id))
        self.model.apply(tuple(NodeChange(n, self.model.nodes[n].state, (CANCELLED,)) for n in ended))
        self.model.move(TreeState.CANCELLED)

    @invariant()
    def the_store_agrees(self) -> None:
        assert_accounted(self.client, self.tree_id)
        record = self.run(self.store.tree(self.tree_id))
        nodes = self.model.nodes
        seq = int(self.client.hget(self.keys.meta, "seq"))
        assert (record.state, record.epoch, seq) == (self.model.state, self.model.epoch, self.model.seq)
        states = Counter(node.state for node in nodes.values())
        branches = sum(node.parent is not None for node in nodes.values())
        assert record.counts == {
            "nodes": len(nodes),
            "roots": len(nodes) - branches,
            "branches": branches,
            **{state.value: states[state] for state in NodeState},
            "rounds": 0,
            "thoughts": sum(node.thoughts for node in nodes.values()),
            "evictions": sum(node.evictions for node in nodes.values()),
        }

    @invariant()
    def every_node_agrees(self) -> None:
        stored = {n.node: n for n in self.run(self.store.nodes(self.tree_id, count=1000))}
        assert {number: (n.state, n.parent, n.mean_score, n.evictions) for number, n in stored.items()} == {
            number: (n.state, n.parent, n.mean_score, n.evictions) for number, n in self.model.nodes.items()
        }
        ranks: dict[int, float] = {}
        for state in NodeState:
            members = self.client.zrange(self.keys.state(state), 0, -1, withscores=True)
            ranks |= {int(number): rank for number, rank in members}
        assert ranks == {
            number: UNSCORED if node.mean_score is None else node.mean_score
            for number, node in self.model.nodes.items()
        }

    @invariant()
    def the_feed_agrees(self) -> None:
        events = self.run(self.store.events(self.tree_id, count=10_000))
        steps = [(e.fields.get("node", "tree"), e.fields.get("from"), e.fields["to"]) for e in events]
        if self.model.state is TreeState.CANCELLED:
            # nodes of one state are cancelled by score, in an order that the model does not have
            assert Counter(steps) == Counter(self.model.steps)
        else:
            assert steps == self.model.steps
        assert len({e.event_id for e in events}) == len(events)


def test_random_histories(redis_url: str, client: Client) -> None:
    traffic: Counter[str] = Counter()
    run_state_machine_as_test(
        lambda: Histories(redis_url, client, traffic),
        settings=settings(
            max_examples=50,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

    # a run in which little happens says little
    assert min(traffic["accepted"], traffic["refused"], traffic["repeated"]) >= 10, traffic
