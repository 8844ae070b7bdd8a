"""The asynchronous client: the same methods, for one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import grpc

from thoughtbeam import _calls
from thoughtbeam._calls import TREES_PAGE, Ask, Steps
from thoughtbeam._channel import channel_options, resolve_endpoint
from thoughtbeam._feed import Feed, SearchFeed, WatchFeed
from thoughtbeam._requests import Prompt, SearchOptions, SubmitOptions, request_of, submit_request
from thoughtbeam._retry import Attempts, OnRetry, Retries, RetryConfig
from thoughtbeam.errors import ApiError, FailedPreconditionError, from_rpc_error
from thoughtbeam.results import Load, Policy, Result, Trace, Tree, TreeEvent, Worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1.reasoning_pb2_grpc import ReasoningServiceStub

_Item = TypeVar("_Item")
_Returned = TypeVar("_Returned")


class AsyncClient:
    """Client for asyncio; see Client. Make it inside the running loop that uses it.

    async with AsyncClient() as client:
        async for item in client.stream("What is 7 * 6?", policy="gambit"):
            print(item)
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        call_timeout: float = 30.0,
        retry: RetryConfig | None = None,
        on_retry: OnRetry | None = None,
    ) -> None:
        self.endpoint = resolve_endpoint(endpoint)
        self._channel = grpc.aio.insecure_channel(self.endpoint, options=channel_options(self.endpoint))
        self._stub: Any = ReasoningServiceStub(self._channel)
        self._call_timeout = call_timeout
        self._closed = False
        self._retries = Retries(retry or RetryConfig(), on_retry)

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
    ) -> AsyncGenerator[TreeEvent | Result, None]:
        """Like `solve`, but gives the events as they come; the last item is the Result. Whoever stops before
        it closes the generator (`contextlib.aclosing`), which ends the call."""
        return self._search(request_of("stream", prompt, policy, options), timeout)

    async def submit(self, prompt: Prompt, *, policy: str, **options: Unpack[SubmitOptions]) -> Tree:
        """Starts one search and returns at once; see Client.submit."""
        return await self._run(_calls.submit(submit_request(prompt, policy, options)))

    def watch(
        self, tree_id: str, after: str = "", *, timeout: float | None = None
    ) -> AsyncGenerator[TreeEvent, None]:
        """The events of a search as they come, up to its last; see Client.watch."""
        return self._follow(WatchFeed(tree_id, after), self._retries.begin(timeout, tree_id))

    async def wait(self, tree_id: str, *, timeout: float | None = None) -> Result:
        """Waits for the end of a search and returns what `solve` would have, or raises what it would have;
        see Client.wait."""
        return await self._run(_calls.wait(tree_id), self._retries.begin(timeout, tree_id))

    async def result(self, tree_id: str) -> Result:
        """The whole result of a search that has ended; see Client.result."""
        return await self._run(_calls.result(tree_id))

    async def trace(self, tree_id: str, node: int, *, own_only: bool = False) -> Trace:
        """One trace: its thoughts with their scores, and its text. own_only: without what it inherited."""
        return await self._run(_calls.trace(tree_id, node, own_only))

    async def tree(self, tree_id: str) -> Tree:
        """One search with all its nodes, running or ended."""
        return await self._run(_calls.tree(tree_id))

    async def trees(self, *, page_size: int = TREES_PAGE) -> AsyncGenerator[Tree, None]:
        """All searches that are still kept, newest first, without their nodes; pages are fetched as
        needed."""
        token = ""
        while True:
            page, token = await self._run(_calls.trees(page_size, token))
            for tree in page:
                yield tree
            if not token:
                return

    async def cancel(self, tree_id: str) -> Tree:
        """Cancels a search; one that has ended is returned as it is. Nodes are not included."""
        return await self._run(_calls.cancel(tree_id))

    async def delete(self, tree_id: str, *, force: bool = False) -> None:
        """Deletes a search that has ended, and everything of it; see Client.delete."""
        await self._run(_calls.delete(tree_id, force))

    async def policies(self) -> list[Policy]:
        """The policies of the connected workers, with their parameters."""
        return await self._run(_calls.policies())

    async def load(self) -> Load:
        """How busy the service is."""
        return await self._run(_calls.load())

    async def workers(self) -> list[Worker]:
        """The decoder workers that the service has heard of lately, by name."""
        return await self._run(_calls.workers())

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

    async def _search(
        self, request: pb.ReasonRequest, timeout: float | None
    ) -> AsyncGenerator[TreeEvent | Result, None]:
        feed = SearchFeed(request)
        attempts = self._retries.begin(timeout, feed.tree_id)
        async with aclosing(self._follow(feed, attempts)) as items:
            async for item in items:
                yield await self._run(_calls.whole(item), attempts) if isinstance(item, Result) else item

    async def _run(self, steps: Steps[_Returned], attempts: Attempts | None = None) -> _Returned:
        """Carries out a method. attempts: of the whole method; None: each of its steps has its own time."""
        try:
            step = next(steps)
            while True:
                try:
                    reply = await self._take(step, attempts or self._retries.begin(self._call_timeout))
                except ApiError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration as returned:
            value: _Returned = returned.value
            return value

    async def _take(self, step: Ask | Feed[Any], attempts: Attempts) -> Any:
        if isinstance(step, Ask):
            return await self._call(step, attempts)
        async for _ in self._follow(step, attempts):
            pass
        return None

    async def _call(self, ask: Ask, attempts: Attempts) -> Any:
        while True:
            self._check_open()
            call = getattr(self._stub, ask.method)(ask.request, timeout=attempts.remaining())
            try:
                reply = await call
            except grpc.RpcError as error:
                await asyncio.sleep(attempts.pause_after(from_rpc_error(error, ask.tree_id)))
            except asyncio.CancelledError:
                raise await _told_apart(call, ask.tree_id) from None
            else:
                attempts.answered()
                return reply

    async def _follow(self, feed: Feed[_Item], attempts: Attempts) -> AsyncGenerator[_Item, None]:
        while True:
            self._check_open()
            stream = getattr(self._stub, feed.method)(feed.begin(), timeout=attempts.remaining())
            failure: ApiError | None
            try:
                async for message in stream:
                    attempts.answered()
                    for item in feed.take(message):
                        yield item
                    if feed.complete:
                        return
                failure = feed.closed()
            except grpc.RpcError as error:
                failure = feed.failure(from_rpc_error(error, feed.tree_id))
            except asyncio.CancelledError:
                raise await _told_apart(stream, feed.tree_id) from None
            finally:
                stream.cancel()
            if failure is None:
                return
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
