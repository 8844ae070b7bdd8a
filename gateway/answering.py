"""What a servicer raises becomes the status of its call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.status import StatusError, abort
from tree_store.errors import (
    EventsTrimmedError,
    NodeNotFoundError,
    RequestReusedError,
    StoreFullError,
    StoreUnavailableError,
    TreeNotFoundError,
)

log = EventLogger("gateway.answering")

# What gRPC raises from a write when the other side has just gone, and the call's task is not cancelled yet.
PEER_GONE = grpc.aio.InternalError


class Answering:
    """The calls under way, of all services."""

    def __init__(self) -> None:
        self._under_way = 0
        self._none = asyncio.Event()
        self._none.set()

    @asynccontextmanager
    async def __call__(self, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[None]:
        """Answers with the status of what is raised inside. What nobody foresaw is INTERNAL and logged."""
        self._under_way += 1
        self._none.clear()
        try:
            yield
        except PEER_GONE:
            log.debug("peer_gone")  # nobody is left to be answered
        except Exception as error:
            await abort(context, as_status(error))
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._none.set()

    async def all_ended(self) -> None:
        """Waits until no call is under way: for gRPC, one that was cut has ended while it still cleans up."""
        await self._none.wait()


def as_status(error: Exception) -> StatusError:
    """The status that a caller is given for an error."""
    code = grpc.StatusCode
    match error:
        case StatusError():
            return error
        case TreeNotFoundError():
            message = f"{error}: it was never created, it was deleted, or it ended more than a day ago"
            return StatusError(code.NOT_FOUND, "TREE_NOT_FOUND", message)
        case NodeNotFoundError():
            return StatusError(code.NOT_FOUND, "NODE_NOT_FOUND", str(error))
        case EventsTrimmedError():
            message = (
                f"after_event_id: {error}; read the tree and its nodes again and go on from its last_event_id"
            )
            return StatusError(code.OUT_OF_RANGE, "EVENTS_TRIMMED", message)
        case RequestReusedError():
            message = "request_id: it was used for another search; make a new one for each"
            return StatusError(code.ALREADY_EXISTS, "REQUEST_ID_REUSED", message)
        case StoreFullError():
            message = "the tree store is out of memory; trees leave it a day after they have ended"
            return StatusError(code.RESOURCE_EXHAUSTED, "STORE_FULL", message)
        case StoreUnavailableError():
            return StatusError(code.UNAVAILABLE, "STORE_UNAVAILABLE", "the tree store cannot be reached")
    log.exception("unforeseen", error=type(error).__name__)
    return StatusError(code.INTERNAL, "INTERNAL", "the gateway failed; its log says how")
