"""The asynchronous client: the same methods, for one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc

from thoughtbeam import _mapping
from thoughtbeam._channel import channel_options, resolve_endpoint
from thoughtbeam._feed import Feed
from thoughtbeam._requests import Prompt, SearchOptions, request_of, tree_name
from thoughtbeam._retry import Retries, RetryConfig
from thoughtbeam.client import NODES_PAGE, TREES_PAGE
from thoughtbeam.errors import ApiError, FailedPreconditionError, from_rpc_error
from thoughtbeam.results import Node, Policy, Result, Tree, TreeEvent
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1.reasoning_pb2_grpc import ReasoningServiceStub

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class AsyncClient:
    """Client for asyncio; see Client. Make it inside the running loop that uses it.

    async with AsyncClient() as client:
        async for item in client.stream("What is 7 * 6?", policy="gambit"):
            print(item)
    """

    def __init__(
        self, endpoint: str | None = None, *, call_timeout: float = 30.0, retry: RetryConfig | None = None
    ) -> None:
        self.endpoint = resolve_endpoint(endpoint)
        self._channel = grpc.aio.insecure_channel(self.endpoint, options=channel_options(self.endpoint))
        self._stub = ReasoningServiceStub(self._channel)
        self._call_timeout = call_timeout
        self._closed = False
        self._retries = Retries(retry or RetryConfig())

    async def solve(
        self,
        prompt: Prompt,
        *,
        policy: str,
        timeout: float | None = None,
        on_event: Callable[[TreeEvent], None] | None = None,
        **options: Unpack[SearchOptions],
    ) -> Result:
        """Runs one search to its end; see Client.solve."""
        async for item in self._search(request_of("solve", prompt, policy, options), timeout):
            if isinstance(item, Result):
                return item
            if on_event is not None:
                on_event(item)
        raise AssertionError("a stream ends in a result or raises")

    def stream(
        self, prompt: Prompt, *, policy: str, timeout: float | None = None, **options: Unpack[SearchOptions]
    ) -> AsyncIterator[TreeEvent | Result]:
        """Like `solve`, but gives the events as they come; the last item is the Result."""
        return self._search(request_of("stream", prompt, policy, options), timeout)

    async def tree(self, tree_id: str) -> Tree:
        """One search with all its nodes, running or ended."""
        reply = await self._call(self._stub.GetTree, pb.GetTreeRequest(name=tree_name(tree_id)), tree_id)
        nodes: list[Node] = []
        request = pb.ListNodesRequest(parent=tree_name(tree_id), page_size=NODES_PAGE)
        while True:
            page = await self._call(self._stub.ListNodes, request, tree_id)
            nodes.extend(_mapping.node(n) for n in page.nodes)
            if not page.next_page_token:
                return _mapping.tree(reply.tree, tuple(nodes))
            request.page_token = page.next_page_token

    async def trees(self, *, page_size: int = TREES_PAGE) -> AsyncIterator[Tree]:
        """All searches that are still kept, newest first, without their nodes; pages are fetched as
        needed."""
        request = pb.ListTreesRequest(page_size=page_size)
        while True:
            page = await self._call(self._stub.ListTrees, request)
            for found in page.trees:
                yield _mapping.tree(found)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def cancel(self, tree_id: str) -> Tree:
        """Cancels a search; one that has ended is returned as it is. Nodes are not included."""
        request = pb.CancelTreeRequest(name=tree_name(tree_id))
        return _mapping.tree((await self._call(self._stub.CancelTree, request, tree_id)).tree)

    async def policies(self) -> list[Policy]:
        """The policies of the connected workers, with their parameters."""
        reply = await self._call(self._stub.ListPolicies, pb.ListPoliciesRequest())
        return [_mapping.policy(p) for p in reply.policies]

    async def close(self) -> None:
        """Ends all calls and the connection. Later calls raise FailedPreconditionError (`CLIENT_CLOSED`)."""
        self._closed = True
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("this client has been closed", reason="CLIENT_CLOSED")

    async def _call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Reply],
        request: _Request,
        tree_id: str | None = None,
    ) -> _Reply:
        attempts = self._retries.begin(self._call_timeout)
        while True:
            self._check_open()
            call = method(request, timeout=attempts.remaining())
            try:
                reply = await call
            except grpc.RpcError as error:
                await asyncio.sleep(attempts.pause_after(from_rpc_error(error, tree_id)))
            except asyncio.CancelledError:
                raise await _told_apart(call, tree_id) from None
            else:
                attempts.answered()
                return reply

    async def _search(
        self, request: pb.ReasonRequest, timeout: float | None
    ) -> AsyncIterator[TreeEvent | Result]:
        feed = Feed(request.request_id)
        attempts = self._retries.begin(timeout, feed.tree_id)
        while True:
            self._check_open()
            stream = self._stub.Reason(request, timeout=attempts.remaining())
            failure: ApiError
            try:
                async for message in stream:
                    attempts.answered()
                    for item in feed.take(message):
                        yield item
                        if isinstance(item, Result):
                            return
                failure = feed.cut_short()
            except grpc.RpcError as error:
                failure = feed.failure(from_rpc_error(error, feed.tree_id))
            except asyncio.CancelledError:
                raise await _told_apart(stream, feed.tree_id) from None
            finally:
                stream.cancel()
            await asyncio.sleep(attempts.pause_after(failure))


async def _told_apart(call: grpc.aio.Call, tree_id: str | None) -> BaseException:
    """grpc.aio raises asyncio.CancelledError for a status CANCELLED too: only a task that was asked to end
    may end that way."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    # the call has ended, so that nothing of this waits
    ended = grpc.aio.AioRpcError(
        await call.code(),
        await call.initial_metadata(),
        await call.trailing_metadata(),
        details=await call.details(),
    )
    return from_rpc_error(ended, tree_id)
