"""ReasoningService: what a client calls. A thin layer: checks, asks the store, maps to the wire."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from contextlib import aclosing
from typing import Any

import grpc

from gateway import mapping, page_tokens
from gateway.admission import Admission
from gateway.answering import PEER_GONE, Answering
from gateway.cancellation import Canceller
from gateway.config import GatewayConfig
from gateway.endings import status_of
from gateway.feed import follow
from gateway.fleet import Fleet
from gateway.names import parse_tree_name, tree_name
from gateway.validation import check_reason, page_size
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc
from tree_store.errors import StoreError, TreeNotFoundError
from tree_store.model import NewTree
from tree_store.store import TreeStore

log = EventLogger("gateway.reasoning")

TREES_PER_PAGE = 50
NODES_PER_PAGE = 200

Context = grpc.aio.ServicerContext[Any, Any]


class ReasoningService(reasoning_pb2_grpc.ReasoningServiceServicer):
    """Serves any number of calls. What it accepts lives in the store: any gateway can go on with it."""

    def __init__(self, store: TreeStore, fleet: Fleet, answering: Answering, config: GatewayConfig) -> None:
        self._store = store
        self._answering = answering
        self._fleet = fleet
        self._config = config
        self._admission = Admission(store, config.max_queued)
        self._canceller = Canceller(store, fleet)
        self._watching: Counter[str] = Counter()  # calls of Reason under way, by tree
        self._stop = asyncio.Event()

    def end_streams(self) -> None:
        """Ends the calls of Reason under way with UNAVAILABLE; their trees go on, and a retry finds them."""
        self._stop.set()

    # The stub is typed for generators. A coroutine that writes is cancelled where it waits when the client
    # goes away; a generator might be left suspended.
    async def Reason(self, request: pb.ReasonRequest, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        async with self._answering(context):
            check_reason(request, self._fleet.catalogue, self._config)
            new = self._new_tree(request)
            self._watching[new.tree_id] += 1
            left = False
            try:
                created = await self._admission.admit(new)
                log.info("tree_accepted", tree_id=new.tree_id, policy=new.policy, retry=not created)
                await self._relay(new.tree_id, context)
            except (asyncio.CancelledError, PEER_GONE):
                left = True
                raise
            finally:
                self._watching[new.tree_id] -= 1
                if not self._watching[new.tree_id]:
                    del self._watching[new.tree_id]
                if left and request.cancel_on_disconnect:
                    await self._cancel_abandoned(new)

    def _new_tree(self, request: pb.ReasonRequest) -> NewTree:
        budgets = request.search.budgets
        seconds = self._config.default_deadline
        if budgets.HasField("deadline"):
            seconds = budgets.deadline.ToNanoseconds() / 1e9
        tree_id = request.request_id.lower() or str(uuid.uuid4())
        return mapping.new_tree(tree_id, request.search, time.time() + seconds)

    async def _relay(self, tree_id: str, context: Context) -> None:
        """Sends the tree's events and, from the stored record alone, how it ended."""
        async with aclosing(follow(self._store, tree_id, self._stop)) as feed:
            async for event in feed:
                await context.write(pb.ReasonResponse(event=mapping.event(tree_id, event)))
        record = await self._store.tree(tree_id)
        if (status := status_of(record)) is not None:
            raise status
        await context.write(pb.ReasonResponse(result=mapping.result(record)))

    async def _cancel_abandoned(self, new: NewTree) -> None:
        """Cancels the tree of a client that has gone, unless another call of the same request watches it, or
        it is this gateway that ended the call."""
        if self._stop.is_set() or new.tree_id in self._watching:
            return
        try:
            # the call may have ended before it was clear whose tree this is
            if (await self._store.tree(new.tree_id)).digest == new.digest:
                await self._canceller.cancel(new.tree_id)
                log.info("tree_abandoned", tree_id=new.tree_id)
        except TreeNotFoundError:
            pass  # the client was gone before it was created
        except StoreError as error:
            log.warning("abandoned_tree_not_cancelled", tree_id=new.tree_id, error=error)

    async def GetTree(self, request: pb.GetTreeRequest, context: Context) -> pb.GetTreeResponse:  # noqa: N802
        async with self._answering(context):
            record = await self._store.tree(parse_tree_name(request.name, "name"))
            return pb.GetTreeResponse(tree=mapping.tree(record))

    async def ListTrees(self, request: pb.ListTreesRequest, context: Context) -> pb.ListTreesResponse:  # noqa: N802
        async with self._answering(context):
            size = page_size(request.page_size, TREES_PER_PAGE)
            before = page_tokens.decode(request.page_token, "trees") if request.page_token else None
            # one more than asked for tells whether there is a next page
            try:
                found = await self._store.list_trees(size + 1, before)
            except TreeNotFoundError as error:
                raise page_tokens.refused(
                    "the tree that it continues after has expired; list again"
                ) from error
            page = pb.ListTreesResponse(trees=[mapping.tree(record) for record in found[:size]])
            if len(found) > size:
                page.next_page_token = page_tokens.encode("trees", found[size - 1].tree_id)
            return page

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.parent, "parent")
            size = page_size(request.page_size, NODES_PER_PAGE)
            listing = f"{tree_name(tree_id)}/nodes"
            first = int(page_tokens.decode(request.page_token, listing)) if request.page_token else 1
            found = await self._store.nodes(tree_id, first, size + 1)
            page = pb.ListNodesResponse(nodes=[mapping.node(tree_id, record) for record in found[:size]])
            if len(found) > size:
                page.next_page_token = page_tokens.encode(listing, str(found[size].node))
            return page

    async def CancelTree(self, request: pb.CancelTreeRequest, context: Context) -> pb.CancelTreeResponse:  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.name, "name")
            record = await self._canceller.cancel_and_wait(tree_id, self._config.cancel_wait)
            return pb.CancelTreeResponse(tree=mapping.tree(record))

    async def ListPolicies(  # noqa: N802
        self, request: pb.ListPoliciesRequest, context: Context
    ) -> pb.ListPoliciesResponse:
        async with self._answering(context):
            policies = self._fleet.catalogue.policies
            return pb.ListPoliciesResponse(policies=[policies[name] for name in sorted(policies)])
