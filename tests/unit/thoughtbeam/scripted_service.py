"""A real gRPC server in this process that answers as a test tells it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
from grpc_status import rpc_status

from thoughtbeam.runtime.status import StatusError, to_status
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc

PUSHBACK = "grpc-retry-pushback-ms"
Say = pb.ReasonResponse | StatusError | Callable[[], object]


class ScriptedService(reasoning_pb2_grpc.ReasoningServiceServicer):
    """Each call takes the next entry of its method's script; a call without one fails the test by INTERNAL.

    replies: by method, what one call answers: a message or an error; of a method that streams a list of what
    it says, in order: a message, an error that ends it, or a function to call. streams: those of Reason.
    """

    def __init__(self) -> None:
        self.streams: list[list[Say]] = []
        self.replies: dict[str, list[Any]] = {}
        self.requests: list[Any] = []

    def _stream(self, method: str, request: Any, context: Any) -> Iterator[Any]:
        self.requests.append(request)
        script = self.streams if method == "Reason" else self.replies.get(method, [])
        for say in self._next(script, context):
            if isinstance(say, StatusError):
                self._abort(context, say)
            if callable(say):
                say()
            else:
                yield say

    def _reply(self, method: str, request: Any, context: Any) -> Any:
        self.requests.append(request)
        answer = self._next(self.replies.get(method, []), context)
        if isinstance(answer, StatusError):
            self._abort(context, answer)
        return answer

    def _next(self, script: list[Any], context: Any) -> Any:
        if not script:
            context.abort(grpc.StatusCode.INTERNAL, "the test has not scripted this call")
        return script.pop(0)

    def _abort(self, context: Any, error: StatusError) -> None:
        if PUSHBACK in error.metadata:
            context.set_trailing_metadata(((PUSHBACK, error.metadata[PUSHBACK]),))
            context.abort(error.code, error.message)
        if error.reason:
            context.abort_with_status(rpc_status.to_status(to_status(error)))
        # what the transport makes of a lost connection has no details
        context.abort(error.code, error.message)


def _served(name: str, streams: bool) -> Callable[[ScriptedService, Any, Any], Any]:
    if streams:
        return lambda self, request, context: self._stream(name, request, context)
    return lambda self, request, context: self._reply(name, request, context)


# every method of the service, so that none can be forgotten
for _method in pb.DESCRIPTOR.services_by_name["ReasoningService"].methods:
    setattr(ScriptedService, _method.name, _served(_method.name, _method.server_streaming))


@contextlib.contextmanager
def serving(service: ScriptedService, port: int = 0) -> Iterator[str]:
    """Serves on loopback; gives `host:port`."""
    server = grpc.server(futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
    reasoning_pb2_grpc.add_ReasoningServiceServicer_to_server(service, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield f"127.0.0.1:{bound}"
    finally:
        server.stop(None).wait()


def pushed_back(milliseconds: str) -> StatusError:
    """UNAVAILABLE with a delay in the trailers alone, as a proxy says it."""
    return StatusError(grpc.StatusCode.UNAVAILABLE, "PROXY", "wait", metadata={PUSHBACK: milliseconds})


LOST = StatusError(grpc.StatusCode.UNAVAILABLE, "", "Socket closed")


def node_event(event_id: str, node: int) -> pb.ReasonResponse:
    """A root was created."""
    change = pb.NodeTransition(node=node, to=pb.NODE_STATE_PENDING)
    return pb.ReasonResponse(event=pb.TreeEvent(event_id=event_id, node=change))


def result(tree_id: str = "t1") -> pb.ReasonResponse:
    """A search that has succeeded with the answer 42."""
    return pb.ReasonResponse(
        result=pb.Result(
            name=f"trees/{tree_id}",
            state=pb.TREE_STATE_SUCCEEDED,
            answer_state=pb.ANSWER_STATE_ANSWERED,
            answer=pb.Answer(text="42", weight=1.5, share=0.75, node=2, final_text="It is \\boxed{42}."),
            votes=[
                pb.Vote(answer="42", weight=1.5, nodes=[2, 1]),
                pb.Vote(answer="7", weight=0.5, nodes=[3]),
            ],
            counts=pb.TreeCounts(nodes=4, roots=3, branches=1, finished=3, pruned=1, rounds=1, thoughts=9),
            usage=pb.TokenUsage(prompt=11, generated=300, recomputed=4),
            policy="gambit",
        )
    )
