"""Reading trees, nodes and what the nodes hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tree_store.connection import Connection, text, texts
from tree_store.errors import NodeNotFoundError, TreeNotFoundError, translated
from tree_store.keys import TREES, TreeKeys
from tree_store.model import NodeContent, NodeRecord, Outcome, TreeRecord
from tree_store.outcomes import decode
from tree_store.packing import unpack_confidences, unpack_thoughts, unpack_tokens
from tree_store.records import node_record, tree_record

# Trees read at a time: each brings its search, which may be as long as a prompt.
_TREES_PER_READ = 50


class TreeReads(Connection):
    """Reads; none of them changes anything."""

    async def tree(self, tree_id: str) -> TreeRecord:
        """Raises TreeNotFoundError."""
        with translated():
            fields = await self._redis.hgetall(TreeKeys(tree_id).meta)
        if not fields:
            raise TreeNotFoundError(f"no tree {tree_id}")
        return tree_record(texts(fields))

    async def outcome(self, tree_id: str) -> Outcome | None:
        """The whole outcome of a tree, of which its record has at most a KiB; None: it has none."""
        with translated():
            stored = await self._redis.get(TreeKeys(tree_id).outcome)
        return None if stored is None else decode(stored)

    async def nodes(self, tree_id: str, first: int = 1, count: int = 200) -> list[NodeRecord]:
        """Up to `count` nodes by number, from number `first` (1 or more) on. Raises TreeNotFoundError."""
        keys = TreeKeys(tree_id)
        numbers = range(max(first, 1), max(first, 1) + count)
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.exists(keys.meta)
                for number in numbers:
                    pipeline.hgetall(keys.node(number))
                known, *found = await pipeline.execute()
        if not known:
            raise TreeNotFoundError(f"no tree {tree_id}")
        return [node_record(n, texts(fields)) for n, fields in zip(numbers, found, strict=True) if fields]

    async def contents(self, tree_id: str, nodes: Sequence[int]) -> list[NodeContent]:
        """What each of these nodes added itself, in their order; one round trip. Raises NodeNotFoundError."""
        keys = TreeKeys(tree_id)
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for node in nodes:
                    pipeline.exists(keys.node(node))
                    pipeline.mget(
                        keys.tokens(node),
                        keys.text(node),
                        keys.thoughts(node),
                        keys.confidences(node),
                        keys.history(node),
                    )
                found = await pipeline.execute()
        contents = []
        for node, known, pieces in zip(nodes, found[::2], found[1::2], strict=True):
            if not known:
                raise NodeNotFoundError(f"tree {tree_id} has no node {node}")
            tokens, words, thoughts, confidences, history = (piece or b"" for piece in pieces)
            contents.append(
                NodeContent(
                    unpack_tokens(tokens),
                    text(words),
                    unpack_thoughts(thoughts),
                    unpack_confidences(confidences),
                    history,
                )
            )
        return contents

    async def policy_state(self, tree_id: str) -> str | None:
        """The policy's state as it was stored last; None before the first."""
        with translated():
            state = await self._redis.get(TreeKeys(tree_id).policy)
        return None if state is None else state.decode()

    async def list_trees(self, count: int, before: str | None = None) -> list[TreeRecord]:
        """Up to `count` trees, newest first, without their searches; fewer mean that there are no more.

        before: the place of the last tree of the previous page, whether that is still there or not.
        """
        records: list[TreeRecord] = []
        while len(records) < count:
            listed = await self._older(before, min(count - len(records), _TREES_PER_READ))
            if not listed:
                break
            records += await self._trees(listed)
            before = _place(*listed[-1])
        return records

    async def _older(self, before: str | None, count: int) -> list[tuple[str, float]]:
        """Up to `count` (tree id, time of listing), newest first; of one time in the reverse order of ids."""
        if before is None:
            with translated():
                found = await self._redis.zrange(TREES, 0, count - 1, desc=True, withscores=True)
            return [(text(tree_id), time) for tree_id, time in found]
        time, _, last = before.partition(" ")
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.zrevrangebyscore(TREES, time, time, withscores=True)
                pipeline.zrevrangebyscore(TREES, f"({time}", "-inf", start=0, num=count, withscores=True)
                same, older = await pipeline.execute()
        behind = [(tree_id, at) for tree_id, at in same if text(tree_id) < last]
        return [(text(tree_id), at) for tree_id, at in [*behind, *older][:count]]

    async def _trees(self, listed: Sequence[tuple[str, float]]) -> list[TreeRecord]:
        """Those of the trees that exist: an id is on the list before its tree is, and after it."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for tree_id, _ in listed:
                    pipeline.hgetall(TreeKeys(tree_id).meta)
                found = await pipeline.execute()
        return [
            replace(tree_record(texts(fields)), search="", place=_place(*entry))
            for entry, fields in zip(listed, found, strict=True)
            if fields
        ]


def _place(tree_id: str, time: float) -> str:
    """Where a tree stands in the list of trees."""
    return f"{time!r} {tree_id}"
