"""One search as its client sees it: the same feed, however often the stream behind it breaks."""

from __future__ import annotations

from collections.abc import Iterator

from thoughtbeam import _mapping
from thoughtbeam.errors import ApiError, InvalidArgumentError, UnavailableError
from thoughtbeam.results import Result, TreeEvent
from thoughtbeam.v1 import reasoning_pb2 as pb


class Feed:
    """Takes the messages of one stream after the other; gives every event once, and the result.

    A stream that is picked up again with the same request id may begin with events that were given before.
    """

    def __init__(self, tree_id: str) -> None:
        self.tree_id = tree_id
        self._seen: set[str] = set()

    def take(self, message: pb.ReasonResponse) -> Iterator[TreeEvent | Result]:
        """What this message adds: nothing, an event or the result."""
        match message.WhichOneof("payload"):
            case "result":
                yield _mapping.result(message.result)
            case "event" if message.event.event_id not in self._seen:
                self._seen.add(message.event.event_id)
                yield _mapping.event(message.event)
            case _:
                return

    def failure(self, error: ApiError) -> ApiError:
        """What the stream ended with. A request that was refused has no tree: where there is one, the
        service names it."""
        if isinstance(error, InvalidArgumentError) and "tree" not in error.metadata:
            error.tree_id = None
        return error

    def cut_short(self) -> UnavailableError:
        """A stream that ended without a result and without an error, to be picked up like a broken one."""
        return UnavailableError(
            "the stream ended before the result", reason="STREAM_CUT_SHORT", tree_id=self.tree_id
        )
