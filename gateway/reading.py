"""The calls that read trees: one, all, nodes, traces, results. None of them changes anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

import grpc

from gateway import mapping, page_tokens
from gateway.answering import Answering
from gateway.names import parse_node_name, parse_tree_name, tree_name
from gateway.results import listed, pieces, shown
from gateway.validation import page_size
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc
from tree_store.errors import NodeNotFoundError
from tree_store.store import TreeStore
from tree_store.traces import Stretch

TREES_PER_PAGE = 50
NODES_PER_PAGE = 200
# Nodes read at a time, and what those of a page take at most, unless it is a single one: with answer mode
# `none` each may have an answer of hundreds of KiB.
NODES_PER_READ = 100
NODES_PAGE_BYTES = 1024 * 1024
THOUGHTS_PER_MESSAGE = 1000

Context = grpc.aio.ServicerContext[Any, Any]


class Reading(reasoning_pb2_grpc.ReasoningServiceServicer):
    """A part of ReasoningService."""

    def __init__(self, store: TreeStore, answering: Answering) -> None:
        self._store = store
        self._answering = answering

    async def GetTree(self, request: pb.GetTreeRequest, context: Context) -> pb.GetTreeResponse:  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.name, "name")
            # first, so that the tree, and nodes listed later, show at least what happened up to it
            last = await self._store.last_event(tree_id)
            record = await self._store.tree(tree_id)
            tree = mapping.tree(record, await shown(self._store, record))
            tree.last_event_id = last.event_id
            return pb.GetTreeResponse(tree=tree)

    async def ListTrees(self, request: pb.ListTreesRequest, context: Context) -> pb.ListTreesResponse:  # noqa: N802
        async with self._answering(context):
            size = page_size(request.page_size, TREES_PER_PAGE)
            before = page_tokens.decode(request.page_token, "trees") if request.page_token else None
            # one more than asked for tells whether there is a next page
            found = await self._store.list_trees(size + 1, before)
            page = pb.ListTreesResponse(
                trees=[mapping.tree(record, listed(record)) for record in found[:size]]
            )
            if len(found) > size:
                page.next_page_token = page_tokens.encode("trees", found[size - 1].place)
            return page

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.parent, "parent")
            size = page_size(request.page_size, NODES_PER_PAGE)
            listing = f"{tree_name(tree_id)}/nodes"
            first = int(page_tokens.decode(request.page_token, listing)) if request.page_token else 1
            nodes, following = await self._nodes(tree_id, first, size)
            page = pb.ListNodesResponse(nodes=nodes)
            if following is not None:
                page.next_page_token = page_tokens.encode(listing, str(following))
            return page

    async def _nodes(self, tree_id: str, first: int, size: int) -> tuple[list[pb.Node], int | None]:
        """Nodes from a number on, as many as a page holds, and the number of the one after them, if any."""
        page: list[pb.Node] = []
        room = NODES_PAGE_BYTES
        while True:
            # one more than fits tells whether there is a next page
            count = min(NODES_PER_READ, size + 1 - len(page))
            found = await self._store.nodes(tree_id, first + len(page), count)
            for record in found:
                node = mapping.node(tree_id, record)
                room -= node.ByteSize()
                if len(page) == size or (page and room < 0):
                    return page, record.node
                page.append(node)
            if len(found) < count:
                return page, None

    # The stub is typed for generators; see Reason.
    async def GetTrace(self, request: pb.GetTraceRequest, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        async with self._answering(context):
            tree_id, number = parse_node_name(request.name, "name")
            async with aclosing(self._trace(tree_id, number, own_only=request.own_only)) as parts:
                async for part in parts:
                    await context.write(part)

    async def _trace(
        self, tree_id: str, number: int, *, own_only: bool
    ) -> AsyncGenerator[pb.GetTraceResponse, None]:
        found = await self._store.nodes(tree_id, number, 1)
        if not found:
            raise NodeNotFoundError(f"tree {tree_id} has no node {number}")
        stretches = await self._store.stretches(tree_id, number, own_only=own_only)
        yield pb.GetTraceResponse(node=mapping.node(tree_id, found[0]))
        thoughts = list(_thoughts(stretches))
        for first in range(0, len(thoughts), THOUGHTS_PER_MESSAGE):
            some = thoughts[first : first + THOUGHTS_PER_MESSAGE]
            yield pb.GetTraceResponse(thoughts=pb.Thoughts(thoughts=some))
        for stretch in stretches:
            async with aclosing(self._store.stretch_text(tree_id, stretch)) as texts:
                async for text in texts:
                    yield pb.GetTraceResponse(text=text)

    async def GetResult(self, request: pb.GetResultRequest, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        async with self._answering(context):
            record = await self._store.tree(parse_tree_name(request.name, "name"))
            for piece in await pieces(self._store, record):
                await context.write(pb.GetResultResponse(data=piece))


def _thoughts(stretches: Sequence[Stretch]) -> Iterator[pb.Thought]:
    text_start = 0
    for stretch in stretches:
        for thought in stretch.thoughts:
            yield mapping.thought(stretch.node, thought, text_start)
        text_start += stretch.text_bytes
