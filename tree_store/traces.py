"""Reading one trace: what it inherited from its ancestors and what it added, in the order of its text."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from tree_store.connection import text
from tree_store.errors import NodeNotFoundError, TreeNotFoundError, translated
from tree_store.keys import TreeKeys
from tree_store.model import Thought
from tree_store.packing import unpack_thoughts
from tree_store.reads import TreeReads

# Bytes of text that one piece has at most; of which up to three may wait for the rest of a character.
TEXT_PIECE = 64 * 1024


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a trace that one node on its path passed itself.

    thoughts: their text_end is a place in the node's own text. text_bytes: how much of that text, from its
    beginning, belongs to the trace.
    """

    node: int
    thoughts: tuple[Thought, ...]
    text_bytes: int


@dataclass(frozen=True, slots=True)
class _Step:
    parent: int | None
    branch_position: int
    stretch: Stretch


class TraceReads(TreeReads):
    """Reads traces."""

    async def stretches(self, tree_id: str, node: int, *, own_only: bool = False) -> list[Stretch]:
        """The parts of a trace from the root on, its own the last (own_only: the only one).

        Raises TreeNotFoundError, NodeNotFoundError.
        """
        step = await self._step(tree_id, node)
        path = [step.stretch]
        limit = step.branch_position
        while step.parent is not None and not own_only:
            step = await self._step(tree_id, step.parent)
            path.append(_up_to(step.stretch, limit))
            limit = min(limit, step.branch_position)
        return path[::-1]

    async def stretch_text(self, tree_id: str, stretch: Stretch) -> AsyncGenerator[str, None]:
        """The text of a stretch, in pieces of at most TEXT_PIECE bytes.

        Raises TreeNotFoundError when the tree is deleted or expires meanwhile.
        """
        key = TreeKeys(tree_id).text(stretch.node)
        decoder = codecs.getincrementaldecoder("utf-8")()
        read = 0
        while read < stretch.text_bytes:
            last = min(read + TEXT_PIECE - 3, stretch.text_bytes) - 1
            with translated():
                data = await self._redis.getrange(key, read, last)
            read += len(data)
            if read <= last:
                raise TreeNotFoundError(f"no tree {tree_id}")
            if piece := decoder.decode(data, final=read == stretch.text_bytes):
                yield piece

    async def _step(self, tree_id: str, node: int) -> _Step:
        keys = TreeKeys(tree_id)
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.exists(keys.meta)
                pipeline.hmget(keys.node(node), "parent", "branch_position")
                pipeline.get(keys.thoughts(node))
                pipeline.strlen(keys.text(node))
                known, (parent, branch_position), thoughts, text_bytes = await pipeline.execute()
        if not known:
            raise TreeNotFoundError(f"no tree {tree_id}")
        if branch_position is None:
            raise NodeNotFoundError(f"tree {tree_id} has no node {node}")
        stretch = Stretch(node, unpack_thoughts(thoughts or b""), text_bytes)
        return _Step(int(text(parent)) if parent else None, int(branch_position), stretch)


def _up_to(stretch: Stretch, limit: int) -> Stretch:
    """The part of an ancestor's stretch that a branch inherits. limit: position at which it branches off."""
    thoughts = tuple(thought for thought in stretch.thoughts if thought.position <= limit)
    return Stretch(stretch.node, thoughts, thoughts[-1].text_end if thoughts else 0)
