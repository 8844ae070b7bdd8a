"""How much of a result is sent where: in lists a little, in a tree or a stream what fits, elsewhere all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import grpc

from gateway import mapping
from gateway.names import tree_name
from thoughtbeam.runtime.status import StatusError
from tree_store.errors import TreeNotFoundError
from tree_store.model import Outcome, TreeRecord, TreeState
from tree_store.outcomes import abridge
from tree_store.store import TreeStore

# Bytes of a Result in one message, or of a piece of one.
MAX_BYTES = 256 * 1024
# Of them, for what does not grow with the search.
_FIXED_BYTES = 8 * 1024


async def shown(store: TreeStore, record: TreeRecord) -> Outcome | None:
    """As much of a tree's outcome as one message takes: the same wherever it is shown."""
    outcome = await _whole(store, record)
    return None if outcome is None else abridge(outcome, MAX_BYTES - _FIXED_BYTES)


def listed(record: TreeRecord) -> Outcome | None:
    """The part of a tree's outcome that a list shows: no votes."""
    outcome = record.outcome
    if outcome is None or not outcome.votes:
        return outcome
    return dataclasses.replace(outcome, votes=(), abridged=True)


async def pieces(store: TreeStore, record: TreeRecord) -> Iterator[bytes]:
    """The whole result, serialised. Raises FAILED_PRECONDITION while there is none."""
    if record.state not in (TreeState.SUCCEEDED, TreeState.CANCELLED):
        raise _no_result(record)
    data = mapping.result(record, await _whole(store, record)).SerializeToString(deterministic=True)
    return (data[first : first + MAX_BYTES] for first in range(0, len(data), MAX_BYTES))


async def _whole(store: TreeStore, record: TreeRecord) -> Outcome | None:
    if record.outcome is None or not record.outcome.abridged:
        return record.outcome
    if (outcome := await store.outcome(record.tree_id)) is None:
        raise TreeNotFoundError(f"no tree {record.tree_id}")  # deleted since its record was read
    return outcome


def _no_result(record: TreeRecord) -> StatusError:
    code, metadata = grpc.StatusCode.FAILED_PRECONDITION, {"tree": tree_name(record.tree_id)}
    if record.state.terminal:
        message = f"the tree is {record.state}: it has no result, its error says why"
        return StatusError(code, "NO_RESULT", message, metadata=metadata)
    return not_ended(record.tree_id, record.state, "its result comes with its end")


def not_ended(tree_id: str, state: str, hint: str) -> StatusError:
    """FAILED_PRECONDITION / TREE_NOT_ENDED."""
    message = f"name: the tree is {state}, it has not ended; {hint}"
    metadata = {"tree": tree_name(tree_id), "state": state}
    return StatusError(grpc.StatusCode.FAILED_PRECONDITION, "TREE_NOT_ENDED", message, metadata=metadata)
