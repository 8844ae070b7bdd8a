"""The synchronous client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeVar, Unpack

import grpc

from thoughtbeam import _mapping
from thoughtbeam._channel import channel_options, resolve_endpoint
from thoughtbeam._feed import Feed
from thoughtbeam._requests import Prompt, SearchOptions, request_of, tree_name
from thoughtbeam._retry import Retries, RetryConfig
from thoughtbeam.errors import ApiError, FailedPreconditionError, from_rpc_error
from thoughtbeam.results import Node, Policy, Result, Tree, TreeEvent
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1.reasoning_pb2_grpc import ReasoningServiceStub

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")

NODES_PAGE = 500
TREES_PAGE = 50


class Client:
    """Talks to a Thoughtbeam service. Safe to share between threads; close it, or use it in a `with`.

        with Client() as client:
            result = client.solve("What is 7 * 6?", policy="gambit")
            print(result.text, result.counts)

    endpoint: `host:port`; None: THOUGHTBEAM_ENDPOINT, else localhost:50551. call_timeout: seconds for a call
    other than `solve` and `stream`, retries included. retry: how long to try while the service does not
    answer. Every method raises an ApiError of the class of its status.
    """

    def __init__(
        self, endpoint: str | None = None, *, call_timeout: float = 30.0, retry: RetryConfig | None = None
    ) -> None:
        self.endpoint = resolve_endpoint(endpoint)
        self._channel = grpc.insecure_channel(self.endpoint, options=channel_options(self.endpoint))
        self._stub = ReasoningServiceStub(self._channel)
        self._call_timeout = call_timeout
        self._closed = False
        self._retries = Retries(retry or RetryConfig())

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
    ) -> Iterator[TreeEvent | Result]:
        """Like `solve`, but gives the events as they come; the last item is the Result."""
        return self._search(request_of("stream", prompt, policy, options), timeout)

    def tree(self, tree_id: str) -> Tree:
        """One search with all its nodes, running or ended."""
        found = self._call(self._stub.GetTree, pb.GetTreeRequest(name=tree_name(tree_id)), tree_id).tree
        nodes: list[Node] = []
        request = pb.ListNodesRequest(parent=tree_name(tree_id), page_size=NODES_PAGE)
        while True:
            page = self._call(self._stub.ListNodes, request, tree_id)
            nodes.extend(_mapping.node(n) for n in page.nodes)
            if not page.next_page_token:
                return _mapping.tree(found, tuple(nodes))
            request.page_token = page.next_page_token

    def trees(self, *, page_size: int = TREES_PAGE) -> Iterator[Tree]:
        """All searches that are still kept, newest first, without their nodes; pages are fetched as
        needed."""
        request = pb.ListTreesRequest(page_size=page_size)
        while True:
            page = self._call(self._stub.ListTrees, request)
            yield from (_mapping.tree(t) for t in page.trees)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def cancel(self, tree_id: str) -> Tree:
        """Cancels a search; one that has ended is returned as it is. Nodes are not included."""
        request = pb.CancelTreeRequest(name=tree_name(tree_id))
        return _mapping.tree(self._call(self._stub.CancelTree, request, tree_id).tree)

    def policies(self) -> list[Policy]:
        """The policies of the connected workers, with their parameters."""
        reply = self._call(self._stub.ListPolicies, pb.ListPoliciesRequest())
        return [_mapping.policy(p) for p in reply.policies]

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

    def _call(
        self,
        method: grpc.UnaryUnaryMultiCallable[_Request, _Reply],
        request: _Request,
        tree_id: str | None = None,
    ) -> _Reply:
        attempts = self._retries.begin(self._call_timeout)
        while True:
            self._check_open()
            try:
                reply = method(request, timeout=attempts.remaining())
            except grpc.RpcError as error:
                time.sleep(attempts.pause_after(from_rpc_error(error, tree_id)))
            else:
                attempts.answered()
                return reply

    def _search(self, request: pb.ReasonRequest, timeout: float | None) -> Iterator[TreeEvent | Result]:
        feed = Feed(request.request_id)
        attempts = self._retries.begin(timeout, feed.tree_id)
        while True:
            self._check_open()
            stream = self._stub.Reason(request, timeout=attempts.remaining())
            failure: ApiError
            try:
                for message in stream:
                    attempts.answered()
                    for item in feed.take(message):
                        yield item
                        if isinstance(item, Result):
                            return
                failure = feed.cut_short()
            except grpc.RpcError as error:
                failure = feed.failure(from_rpc_error(error, feed.tree_id))
            finally:
                stream.cancel()
            time.sleep(attempts.pause_after(failure))
