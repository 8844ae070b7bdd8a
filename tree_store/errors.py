"""What can go wrong in the tree store, one class per outcome that a caller treats differently."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis_errors

from thoughtbeam.runtime.tasks import cancellation_kept


class StoreError(Exception):
    """Base of all errors of the tree store; itself: Redis refused something that it should not have."""


class StoreUnavailableError(StoreError):
    """Redis could not be reached, retries included. The write may or may not have been applied."""


class StoreFullError(StoreError):
    """Redis is at `maxmemory`; nothing was written."""


class TreeNotFoundError(StoreError):
    """No such tree: never created, or expired."""


class NodeNotFoundError(StoreError):
    """The tree has no node of that number."""


class EventsTrimmedError(StoreError):
    """A feed cannot be gone on with from an event: later ones have left it, or it has never had that one."""


class RequestReusedError(StoreError):
    """The tree's id is taken by another request."""


class StaleEpochError(StoreError):
    """The tree is not run under that epoch (any more): the writer has lost it and must stop."""


class SequenceGapError(StoreError):
    """A batch before this one is missing: `seq` must be the last applied plus one."""


class TransitionRefusedError(StoreError):
    """The state machine has no such step.

    state: what is stored: of the tree, or of the node when `node` is set (`none`: it does not exist).
    """

    def __init__(self, message: str, state: str, node: int | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.node = node


class OpenNodesError(TransitionRefusedError):
    """A tree cannot end while nodes still count: nodes = roots + branches = finished + pruned + cancelled."""


def refusal(reply: str) -> StoreError:
    """The error of a script's reply `CODE detail…` (the codes are in lua/shared/tree.lua)."""
    code, _, detail = reply.partition(" ")
    match code:
        case "NOT_FOUND":
            return TreeNotFoundError(f"no tree {detail}")
        case "REUSED":
            return RequestReusedError(f"tree {detail} was made for another request")
        case "STALE_EPOCH":
            return StaleEpochError(detail)
        case "SEQUENCE_GAP":
            return SequenceGapError(detail)
        case "TREE_REFUSED":
            state, _, why = detail.partition(" ")
            return TransitionRefusedError(f"the tree is {state}: {why}", state)
        case "NODE_REFUSED":
            node, state, why = detail.split(" ", 2)
            return TransitionRefusedError(f"node {node} is {state}: {why}", state, int(node))
        case "OPEN_NODES":
            state, _, why = detail.partition(" ")
            return OpenNodesError(f"the tree cannot end: {why}", state)
    return StoreError(reply)


@contextmanager
def translated() -> Iterator[None]:
    """Around calls of redis-py in a task: raises its errors as ours, and a cancellation that it has lost (it
    sends with asyncio.wait_for)."""
    try:
        with cancellation_kept():
            yield
    except redis_errors.OutOfMemoryError as error:
        raise StoreFullError(str(error)) from error
    except (redis_errors.ConnectionError, redis_errors.TimeoutError) as error:
        raise StoreUnavailableError(str(error)) from error
    except redis_errors.ResponseError as error:
        raise refusal(str(error)) from error
    except redis_errors.RedisError as error:  # a reply that is none, and whatever else it may come to raise
        raise StoreError(str(error)) from error
