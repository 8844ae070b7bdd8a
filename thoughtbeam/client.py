"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import closing
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


class Client:
    """Talks to a Thoughtbeam service. Safe to share between threads; close it, or use it in a `with`.

        with Client() as client:
            result = client.solve("What is 7 * 6?", policy="gambit")
            print(result.text, result.counts)

    endpoint: `host:port`; None: THOUGHTBEAM_ENDPOINT, else localhost:50551. call_timeout: seconds for a call
    that has no `timeout` of its own, retries included. retry: how long to try while the service does not
    answer. on_retry: called before each pause, from the thread of the call. Every method raises an ApiError
    of the class of its status.
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
        self._channel = grpc.insecure_channel(self.endpoint, options=channel_options(self.endpoint))
        self._stub: Any = ReasoningServiceStub(self._channel)
        self._call_timeout = call_timeout
        self._closed = False
        self._retries = Retries(retry or RetryConfig(), on_retry)

    def solve(
        self,
        prompt: Prompt,
        *,
        policy: str,
        timeout: float | None = None,
        on_event: Callable[[TreeEvent], None] | None = None,
        **options: Unpack[SearchOptions],
    ) -> Result:
        """Runs one search to its end.

        prompt: a question, or chat messages with `role` and `content`. timeout: seconds to wait, retries
        included; the search itself goes on after it (see `cancel_on_disconnect`, and the `deadline` option
        for a budget that ends it with the best answer so far). on_event: called with each event. options:
        see SearchOptions.
        """
        for item in self._search(request_of("solve", prompt, policy, options), timeout):
            if isinstance(item, Result):
                return item
            if on_event is not None:
                on_event(item)
        raise AssertionError("a stream ends in a result or raises")

    def stream(
        self, prompt: Prompt, *, policy: str, timeout: float | None = None, **options: Unpack[SearchOptions]
    ) -> Generator[TreeEvent | Result, None, None]:
        """Like `solve`, but gives the events as they come; the last item is the Result. Whoever stops before
        it closes the generator, which ends the call."""
        return self._search(request_of("stream", prompt, policy, options), timeout)

    def submit(self, prompt: Prompt, *, policy: str, **options: Unpack[SubmitOptions]) -> Tree:
        """Starts one search and returns at once; `watch` and `wait` follow it. Arguments as in `solve`."""
        return self._run(_calls.submit(submit_request(prompt, policy, options)))

    def watch(
        self, tree_id: str, after: str = "", *, timeout: float | None = None
    ) -> Generator[TreeEvent, None, None]:
        """The events of a search as they come, up to its last.

        after: an event_id; only later events are given. "": all of them. timeout: seconds, retries included.
        Raises OutOfRangeError (`EVENTS_TRIMMED`) when the service no longer holds the events after it: read
        the tree again with `tree` and go on from its last_event_id.
        """
        return self._follow(WatchFeed(tree_id, after), self._retries.begin(timeout, tree_id))

    def wait(self, tree_id: str, *, timeout: float | None = None) -> Result:
        """Waits for the end of a search and returns what `solve` would have, or raises what it would have.

        timeout: seconds, retries included; the search goes on after it.
        """
        return self._run(_calls.wait(tree_id), self._retries.begin(timeout, tree_id))

    def result(self, tree_id: str) -> Result:
        """The whole result of a search that has succeeded or was cancelled; FailedPreconditionError
        (`TREE_NOT_ENDED`, `NO_RESULT`) if it has none."""
        return self._run(_calls.result(tree_id))

    def trace(self, tree_id: str, node: int, *, own_only: bool = False) -> Trace:
        """One trace: its thoughts with their scores, and its text. own_only: without what it inherited."""
        return self._run(_calls.trace(tree_id, node, own_only))

    def tree(self, tree_id: str) -> Tree:
        """One search with all its nodes, running or ended."""
        return self._run(_calls.tree(tree_id))

    def trees(self, *, page_size: int = TREES_PAGE) -> Generator[Tree, None, None]:
        """All searches that are still kept, newest first, without their nodes; pages are fetched as
        needed."""
        token = ""
        while True:
            page, token = self._run(_calls.trees(page_size, token))
            yield from page
            if not token:
                return

    def cancel(self, tree_id: str) -> Tree:
        """Cancels a search; one that has ended is returned as it is. Nodes are not included."""
        return self._run(_calls.cancel(tree_id))

    def delete(self, tree_id: str, *, force: bool = False) -> None:
        """Deletes a search that has ended, and everything of it. force: cancel it first if it has not;
        otherwise that is a FailedPreconditionError (`TREE_NOT_ENDED`)."""
        self._run(_calls.delete(tree_id, force))

    def policies(self) -> list[Policy]:
        """The policies of the connected workers, with their parameters."""
        return self._run(_calls.policies())

    def load(self) -> Load:
        """How busy the service is."""
        return self._run(_calls.load())

    def workers(self) -> list[Worker]:
        """The decoder workers that the service has heard of lately, by name."""
        return self._run(_calls.workers())

    def close(self) -> None:
        """Ends all calls and the connection. Later calls raise FailedPreconditionError (`CLIENT_CLOSED`)."""
        self._closed = True
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise FailedPreconditionError("this client has been closed", reason="CLIENT_CLOSED")

    def _search(
        self, request: pb.ReasonRequest, timeout: float | None
    ) -> Generator[TreeEvent | Result, None, None]:
        feed = SearchFeed(request)
        attempts = self._retries.begin(timeout, feed.tree_id)
        with closing(self._follow(feed, attempts)) as items:
            for item in items:
                yield self._run(_calls.whole(item), attempts) if isinstance(item, Result) else item

    def _run(self, steps: Steps[_Returned], attempts: Attempts | None = None) -> _Returned:
        """Carries out a method. attempts: of the whole method; None: each of its steps has its own time."""
        try:
            step = next(steps)
            while True:
                try:
                    reply = self._take(step, attempts or self._retries.begin(self._call_timeout))
                except ApiError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(reply)
        except StopIteration as returned:
            value: _Returned = returned.value
            return value

    def _take(self, step: Ask | Feed[Any], attempts: Attempts) -> Any:
        if isinstance(step, Ask):
            return self._call(step, attempts)
        for _ in self._follow(step, attempts):
            pass
        return None

    def _call(self, ask: Ask, attempts: Attempts) -> Any:
        while True:
            self._check_open()
            try:
                reply = getattr(self._stub, ask.method)(ask.request, timeout=attempts.remaining())
            except grpc.RpcError as error:
                time.sleep(attempts.pause_after(from_rpc_error(error, ask.tree_id)))
            else:
                attempts.answered()
                return reply

    def _follow(self, feed: Feed[_Item], attempts: Attempts) -> Generator[_Item, None, None]:
        while True:
            self._check_open()
            stream = getattr(self._stub, feed.method)(feed.begin(), timeout=attempts.remaining())
            failure: ApiError | None
            try:
                for message in stream:
                    attempts.answered()
                    yield from feed.take(message)
                    if feed.complete:
                        return
                failure = feed.closed()
            except grpc.RpcError as error:
                failure = feed.failure(from_rpc_error(error, feed.tree_id))
            finally:
                stream.cancel()
            if failure is None:
                return
            time.sleep(attempts.pause_after(failure))
