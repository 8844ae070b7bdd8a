"""ReasoningService: what a client calls. A thin layer: checks, asks the store, maps to the wire."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from contextlib import aclosing
from typing import Any

import grpc

from gateway import mapping
from gateway.admission import Admission
from gateway.answering import PEER_GONE, Answering
from gateway.cancellation import Canceller
from gateway.config import GatewayConfig
from gateway.endings import status_of, stopping
from gateway.feed import Feeds, ends
from gateway.fleet import Fleet
from gateway.names import parse_tree_name
from gateway.operations import Operations
from gateway.reading import Reading
from gateway.results import not_ended, shown
from gateway.validation import check_event_id, check_request
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.errors import StoreError, TransitionRefusedError, TreeNotFoundError
from tree_store.model import NewTree, TreeRecord
from tree_store.store import TreeStore

log = EventLogger("gateway.reasoning")

Context = grpc.aio.ServicerContext[Any, Any]

_FORCED_AGAIN_AFTER = 1.0  # seconds, when a tree that is to be deleted takes its time to end


class ReasoningService(Reading, Operations):
    """Serves any number of calls. What it accepts lives in the store: any gateway can go on with it.

    Here is what starts, watches and ends searches; what reads them is in reading.py, what is about the
    service itself in operations.py.
    """

    def __init__(
        self, store: TreeStore, fleet: Fleet, feeds: Feeds, answering: Answering, config: GatewayConfig
    ) -> None:
        Reading.__init__(self, store, answering)
        Operations.__init__(self, store, fleet, answering, config)
        self._feeds = feeds
        self._admission = Admission(store, config.max_queued)
        self._canceller = Canceller(store, fleet)
        self._watching: Counter[str] = Counter()  # calls of Reason under way, by tree

    # The stub is typed for generators. A coroutine that writes is cancelled where it waits when the client
    # goes away; a generator might be left suspended.
    async def Reason(self, request: pb.ReasonRequest, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        async with self._answering(context):
            check_request(request, self._fleet.catalogue, self._config)
            new = self._new_tree(request)
            self._watching[new.tree_id] += 1
            left = False
            try:
                if request.after_event_id:
                    # its tree has been there: if it has been deleted meanwhile, this is no new search
                    await self._store.tree(new.tree_id)
                await self._admit(new)
                await self._relay(new.tree_id, request.after_event_id, context)
            except (asyncio.CancelledError, PEER_GONE):
                left = True
                raise
            finally:
                self._watching[new.tree_id] -= 1
                if not self._watching[new.tree_id]:
                    del self._watching[new.tree_id]
                if left and request.cancel_on_disconnect:
                    await self._cancel_abandoned(new)

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:  # noqa: N802
        async with self._answering(context):
            check_request(request, self._fleet.catalogue, self._config)
            new = self._new_tree(request)
            await self._admit(new)
            return pb.SubmitResponse(tree=await self._tree(await self._store.tree(new.tree_id)))

    def _new_tree(self, request: pb.ReasonRequest | pb.SubmitRequest) -> NewTree:
        budgets = request.search.budgets
        seconds = self._config.default_deadline
        if budgets.HasField("deadline"):
            seconds = budgets.deadline.ToNanoseconds() / 1e9
        tree_id = request.request_id.lower() or str(uuid.uuid4())
        return mapping.new_tree(tree_id, request.search, time.time() + seconds, self._config.max_events)

    async def _admit(self, new: NewTree) -> None:
        created = await self._admission.admit(new)
        log.info("tree_accepted", tree_id=new.tree_id, policy=new.policy, retry=not created)

    async def _relay(self, tree_id: str, after: str, context: Context) -> None:
        """Sends the tree's later events and, from the stored record alone, how it ended."""
        async with aclosing(self._feeds.follow(tree_id, after, skip=True)) as feed:
            async for event in feed:
                await context.write(pb.ReasonResponse(event=mapping.event(tree_id, event)))
        record = await self._store.tree(tree_id)
        if (status := status_of(record)) is not None:
            raise status
        outcome = await shown(self._store, record)
        await context.write(pb.ReasonResponse(result=mapping.result(record, outcome)))

    async def _cancel_abandoned(self, new: NewTree) -> None:
        """Cancels the tree of a client that has gone, unless another call of the same request watches it, or
        it is this gateway that ended the call."""
        if self._feeds.closed or new.tree_id in self._watching:
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

    async def WatchTree(self, request: pb.WatchTreeRequest, context: Context) -> None:  # type: ignore[override]  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.name, "name")
            check_event_id(request.after_event_id)
            last = None
            async with aclosing(self._feeds.follow(tree_id, request.after_event_id)) as feed:
                async for last in feed:
                    await context.write(pb.WatchTreeResponse(event=mapping.event(tree_id, last)))
            if self._feeds.closed and not (last and ends(last)):
                raise stopping(tree_id)

    async def CancelTree(self, request: pb.CancelTreeRequest, context: Context) -> pb.CancelTreeResponse:  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.name, "name")
            record = await self._canceller.cancel_and_wait(tree_id, self._config.cancel_wait)
            return pb.CancelTreeResponse(tree=await self._tree(record))

    async def DeleteTree(self, request: pb.DeleteTreeRequest, context: Context) -> pb.DeleteTreeResponse:  # noqa: N802
        async with self._answering(context):
            tree_id = parse_tree_name(request.name, "name")
            if request.force:
                await self._end(tree_id)
            try:
                await self._store.delete(tree_id)
            except TransitionRefusedError as error:
                raise not_ended(tree_id, error.state, "wait for its end, cancel it, or set force") from error
            log.info("tree_deleted", tree_id=tree_id)
            return pb.DeleteTreeResponse()

    async def _end(self, tree_id: str) -> None:
        """Cancels a tree that is to be deleted. Raises UNAVAILABLE when it does not end in time."""
        try:
            record = await self._canceller.cancel_and_wait(tree_id, self._config.cancel_wait)
        except TreeNotFoundError:
            return  # or what an earlier call has left of it: the store knows
        if not record.state.terminal:
            raise StatusError(
                grpc.StatusCode.UNAVAILABLE,
                "TREE_NOT_ENDED",
                "name: the tree is being cancelled and has not ended yet; delete it again",
                retry_after=_FORCED_AGAIN_AFTER,
            )

    async def _tree(self, record: TreeRecord) -> pb.Tree:
        return mapping.tree(record, await shown(self._store, record))
