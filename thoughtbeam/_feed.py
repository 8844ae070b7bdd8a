"""Streams as their caller sees them: one each, however often the connection behind it breaks. No I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from thoughtbeam import _mapping
from thoughtbeam._requests import node_name, tree_name
from thoughtbeam.errors import (
    AlreadyExistsError,
    ApiError,
    FailedPreconditionError,
    InvalidArgumentError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from thoughtbeam.results import Result, Trace, TreeEvent, TreeState, TreeTransition
from thoughtbeam.v1 import reasoning_pb2 as pb

Item = TypeVar("Item", covariant=True)

_REFUSALS = (
    *(InvalidArgumentError, FailedPreconditionError, AlreadyExistsError, ResourceExhaustedError),
    *(PermissionDeniedError, UnauthenticatedError, UnimplementedError),
)
_UNDER_WAY = (TreeState.QUEUED, TreeState.RUNNING)


class Feed(ABC, Generic[Item]):
    """One logical call whose answer is a stream: what each attempt asks for, and what its messages add up to.

    complete: nothing more is needed, whatever the stream still says.
    """

    method: ClassVar[str]

    def __init__(self, tree_id: str) -> None:
        self.tree_id = tree_id
        self.complete = False

    @abstractmethod
    def begin(self) -> Any:
        """The request of the next attempt."""

    @abstractmethod
    def take(self, message: Any) -> Iterable[Item]:
        """What this message gives to the caller."""

    def closed(self) -> UnavailableError | None:
        """What it means that the stream has ended without an error: None, if it was whole. One that was cut
        short is picked up like a broken one."""
        return None

    def failure(self, error: ApiError) -> ApiError:
        """What the stream ended with."""
        return error


class SearchFeed(Feed[TreeEvent | Result]):
    """Reason: no event twice, those that the feed has trimmed left out, then the result."""

    method = "Reason"

    def __init__(self, request: pb.ReasonRequest) -> None:
        super().__init__(request.request_id)
        self._request = request

    def begin(self) -> pb.ReasonRequest:
        return self._request

    def take(self, message: pb.ReasonResponse) -> Iterable[TreeEvent | Result]:
        match message.WhichOneof("payload"):
            case "result":
                self.complete = True
                yield _mapping.result(message.result)
            case "event":
                self._request.after_event_id = message.event.event_id
                yield _mapping.event(message.event)

    def closed(self) -> UnavailableError:
        return cut_short(self.tree_id)

    def failure(self, error: ApiError) -> ApiError:
        return error if self._request.after_event_id else without_tree_if_refused(error)


class WatchFeed(Feed[TreeEvent]):
    """WatchTree: every event after `after` once, up to the tree's last."""

    method = "WatchTree"

    def __init__(self, tree_id: str, after: str) -> None:
        super().__init__(tree_id)
        self._request = pb.WatchTreeRequest(name=tree_name(tree_id), after_event_id=after)

    def begin(self) -> pb.WatchTreeRequest:
        return self._request

    def take(self, message: pb.WatchTreeResponse) -> Iterable[TreeEvent]:
        self._request.after_event_id = message.event.event_id
        event = _mapping.event(message.event)
        self.complete = isinstance(event, TreeTransition) and event.state not in _UNDER_WAY
        yield event


class ResultParts(Feed[Any]):
    """GetResult: the whole result, however large. A stream that breaks is read again from its beginning."""

    method = "GetResult"

    def __init__(self, tree_id: str) -> None:
        super().__init__(tree_id)
        self._parts: list[bytes] = []

    def begin(self) -> pb.GetResultRequest:
        self._parts.clear()
        return pb.GetResultRequest(name=tree_name(self.tree_id))

    def take(self, message: pb.GetResultResponse) -> Sequence[Any]:
        self._parts.append(message.data)
        return ()

    def result(self) -> Result:
        return _mapping.result(pb.Result.FromString(b"".join(self._parts)))


class TraceParts(Feed[Any]):
    """GetTrace: the node, its thoughts and its text. A stream that breaks is read again from its
    beginning."""

    method = "GetTrace"

    def __init__(self, tree_id: str, node: int, own_only: bool) -> None:
        super().__init__(tree_id)
        self._request = pb.GetTraceRequest(name=node_name(tree_id, node), own_only=own_only)
        self._node = pb.Node()
        self._thoughts: list[pb.Thought] = []
        self._texts: list[str] = []

    def begin(self) -> pb.GetTraceRequest:
        self._thoughts.clear()
        self._texts.clear()
        return self._request

    def take(self, message: pb.GetTraceResponse) -> Sequence[Any]:
        match message.WhichOneof("part"):
            case "node":
                self._node = message.node
            case "thoughts":
                self._thoughts.extend(message.thoughts.thoughts)
            case "text":
                self._texts.append(message.text)
        return ()

    def trace(self) -> Trace:
        return _mapping.trace(self._node, self._thoughts, "".join(self._texts))


def cut_short(tree_id: str) -> UnavailableError:
    """A stream that ended too early, and without an error."""
    return UnavailableError("the stream ended before the result", reason="STREAM_CUT_SHORT", tree_id=tree_id)


def without_tree_if_refused(error: ApiError) -> ApiError:
    """A request that was refused has no tree: where there is one, the service names it."""
    if isinstance(error, _REFUSALS) and "tree" not in error.metadata:
        error.tree_id = None
    return error
