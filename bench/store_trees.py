"""Trees in a store, of any size and state, written as a decoder worker writes them."""

from __future__ import annotations

import random
import time
import uuid

from tree_store.model import (
    Batch,
    NewTree,
    NodeChange,
    NodeState,
    Outcome,
    RoundRecord,
    Thought,
    TreeState,
)
from tree_store.store import TreeStore

THOUGHT_TOKENS = 40
_TEXT = "so that 7 * 23 = 161, and 161 + 42 = 203; "  # about what forty tokens of a small vocabulary say
_LEASE = 3600.0
_NODES_PER_BATCH = 256
_QUESTION = "Start with 871 and work modulo 1000. a) +723 b) *7 c) -543. Report the value after c."


def new_tree() -> NewTree:
    """A tree to create."""
    search = '{"question": "' + _QUESTION + '", "policy": "gambit"}'
    deadline = time.time() + 24 * 3600
    return NewTree(str(uuid.uuid4()), search, "d" * 64, "m", "gambit", "paper", _QUESTION, deadline)


class StoredTree:
    """One tree of which we are the owner. live: numbers of its live nodes. thoughts, tokens: of all nodes."""

    def __init__(self, store: TreeStore, seed: int = 0) -> None:
        self.new = new_tree()
        self.live: list[int] = []
        self.nodes = self.thoughts = self.tokens = 0
        self.epoch = self.seq = 0
        self._rounds = 0
        self._lengths: dict[int, int] = {}  # tokens of the whole sequence, by node
        self._own_text: dict[int, int] = {}  # bytes
        self._store = store
        self._random = random.Random(seed)

    @property
    def tree_id(self) -> str:
        return self.new.tree_id

    async def create(self) -> None:
        """In the queue."""
        await self._store.create(self.new)
        await self._store.enqueue(self.tree_id)

    async def assign(self) -> None:
        """Running, and ours."""
        self.epoch = (await self._store.assign(self.tree_id, "bench", _LEASE)).epoch
        self.seq = 0

    async def write(self, batch: Batch) -> None:
        """The next batch."""
        self.seq += 1
        await self._store.commit(self.tree_id, self.epoch, self.seq, batch)

    async def grow(self, size: int, thoughts: int) -> None:
        """Makes it run with `size` live roots, each of which passes so many boundaries."""
        await self.create()
        await self.assign()
        for first in range(1, size + 1, _NODES_PER_BATCH):
            numbers = range(first, min(first + _NODES_PER_BATCH, size + 1))
            await self.write(Batch(nodes=tuple(self._born(number, None) for number in numbers)))
        for _ in range(thoughts):
            for first in range(0, size, _NODES_PER_BATCH):
                await self.write(self.step(self.live[first : first + _NODES_PER_BATCH]))

    def step(self, nodes: list[int]) -> Batch:
        """What one engine step writes in which these nodes pass a boundary."""
        changes = tuple(self._boundary(node) for node in nodes)
        return Batch(
            nodes=changes,
            fields={"generated": str(self.tokens), "recomputed": "0"},
            policy_state='{"thoughts":117,"by_trace":[]}',
        )

    def some(self, count: int) -> list[int]:
        """So many of the live nodes, at random."""
        return self._random.sample(self.live, count)

    def exchange(self, k: int) -> Batch:
        """What a tournament writes that prunes and branches k traces."""
        chosen = self.some(2 * k)
        pruned, parents = chosen[:k], chosen[k:]
        self.live = [node for node in self.live if node not in set(pruned)]
        gone = tuple(NodeChange(node=n, before=NodeState.LIVE, path=(NodeState.PRUNED,)) for n in pruned)
        born = tuple(self._born(self.nodes + 1, parent) for parent in parents)
        self._rounds += 1
        record = RoundRecord(
            self._rounds, self.thoughts, len(self.live), len(self.live), 0, 0.5, tuple(pruned), tuple(parents)
        )
        state = '{"thoughts":3,"by_trace":[]}'
        return Batch(nodes=gone + born, rounds=(record,), policy_state=state)

    async def finish(self) -> None:
        """Ends it with an answer: one node finished, the others cancelled, in its last batch."""
        best, *others = self.live
        changes = [NodeChange(node=best, before=NodeState.LIVE, path=(NodeState.FINISHED,), reason="stop")]
        changes += [NodeChange(node=n, before=NodeState.LIVE, path=(NodeState.CANCELLED,)) for n in others]
        self.seq += 1
        await self._store.finish(
            self.tree_id,
            self.epoch,
            self.seq,
            Batch(nodes=tuple(changes)),
            TreeState.SUCCEEDED,
            Outcome("615", best, 1.0, 1.0, "The value is 615."),
            None,
        )

    def _born(self, number: int, parent: int | None) -> NodeChange:
        position = self._lengths[parent] if parent is not None else 0
        self.nodes = max(self.nodes, number)
        self._lengths[number], self._own_text[number] = position, 0
        self.live.append(number)
        return NodeChange(
            node=number,
            before=None,
            path=(NodeState.PENDING, NodeState.LIVE),
            parent=parent,
            branch_position=position,
            mean_score=None if parent is None else self._random.random(),
        )

    def _boundary(self, node: int) -> NodeChange:
        self._lengths[node] += THOUGHT_TOKENS
        text = "".join((_TEXT, str(self._random.randrange(10**6)) * 10, _TEXT))
        self._own_text[node] += len(text)
        self.thoughts += 1
        self.tokens += THOUGHT_TOKENS
        score = self._random.random()
        return NodeChange(
            node=node,
            before=NodeState.LIVE,
            mean_score=score,
            fields={
                "thoughts": "300",
                "unique_tokens": str(self._lengths[node]),
                "total_tokens": str(self._lengths[node]),
            },
            tokens=tuple(self._random.randrange(150_000) for _ in range(THOUGHT_TOKENS)),
            text=text,
            thoughts=(Thought(self._lengths[node], score, text_end=self._own_text[node]),),
        )
