"""Reading trees, nodes and what the nodes hold."""

from __future__ import annotations

from collections.abc import Sequence

from tree_store.connection import Connection, text, texts
from tree_store.errors import NodeNotFoundError, TreeNotFoundError, translated
from tree_store.keys import TREES, TreeKeys
from tree_store.model import NodeContent, NodeRecord, TreeRecord
from tree_store.packing import unpack_thoughts, unpack_tokens
from tree_store.records import node_record, tree_record


class TreeReads(Connection):
    """Reads; none of them changes anything."""

    async def tree(self, tree_id: str) -> TreeRecord:
        """Raises TreeNotFoundError."""
        with translated():
            fields = await self._redis.hgetall(TreeKeys(tree_id).meta)
        if not fields:
            raise TreeNotFoundError(f"no tree {tree_id}")
        return tree_record(texts(fields))

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
                    pipeline.mget(keys.tokens(node), keys.text(node), keys.thoughts(node))
                found = await pipeline.execute()
        contents = []
        for node, known, (tokens, words, thoughts) in zip(nodes, found[::2], found[1::2], strict=True):
            if not known:
                raise NodeNotFoundError(f"tree {tree_id} has no node {node}")
            contents.append(
                NodeContent(unpack_tokens(tokens or b""), text(words), unpack_thoughts(thoughts or b""))
            )
        return contents

    async def policy_state(self, tree_id: str) -> str | None:
        """The policy's state as it was stored last; None before the first."""
        with translated():
            state = await self._redis.get(TreeKeys(tree_id).policy)
        return None if state is None else state.decode()

    async def list_trees(self, count: int, before: str | None = None) -> list[TreeRecord]:
        """Up to `count` trees, newest first; `before`: the last tree of the previous page.

        Fewer than `count` means that there are no more. Raises TreeNotFoundError when `before` is gone.
        """
        records: list[TreeRecord] = []
        while len(records) < count:
            ids = await self._older(before, count - len(records))
            if not ids:
                break
            records += await self._trees(ids)
            before = ids[-1]
        return records

    async def _older(self, before: str | None, count: int) -> list[str]:
        start = 0
        with translated():
            if before is not None:
                rank = await self._redis.zrevrank(TREES, before)
                if rank is None:
                    raise TreeNotFoundError(f"no tree {before}")
                start = rank + 1
            ids = [text(i) for i in await self._redis.zrange(TREES, start, start + count - 1, desc=True)]
        # a tree made in between moves all ranks by one
        return ids[ids.index(before) + 1 :] if before in ids else ids

    async def _trees(self, ids: Sequence[str]) -> list[TreeRecord]:
        """Those of the trees that exist: an id is on the list before its tree is, and after it."""
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for tree_id in ids:
                    pipeline.hgetall(TreeKeys(tree_id).meta)
                found = await pipeline.execute()
        return [tree_record(texts(fields)) for fields in found if fields]
