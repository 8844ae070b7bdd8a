"""The status that a call of Reason ends with, from how its tree ended."""

from __future__ import annotations

import grpc

from gateway.mapping import failure_message
from gateway.names import tree_name
from thoughtbeam.runtime.status import StatusError, Violation
from tree_store.model import Failure, TreeRecord, TreeState

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def status_of(record: TreeRecord) -> StatusError | None:
    """None: the tree has succeeded."""
    metadata = {"tree": tree_name(record.tree_id)}
    code = grpc.StatusCode
    match record.state:
        case TreeState.SUCCEEDED:
            return None
        case TreeState.CANCELLED:
            return StatusError(code.CANCELLED, "TREE_CANCELLED", "the tree was cancelled", metadata=metadata)
        case TreeState.FAILED | TreeState.EXPIRED:
            assert record.failure is not None, "stored with these states"
            return _of_failure(record.failure, metadata)
    return stopping(record.tree_id)


def stopping(tree_id: str) -> StatusError:
    """For a call that watches a tree."""
    return StatusError(
        grpc.StatusCode.UNAVAILABLE,
        "GATEWAY_STOPPING",
        "the gateway is stopping; the tree goes on, call again to go on watching it",
        metadata={"tree": tree_name(tree_id)},
    )


def _of_failure(failure: Failure, metadata: dict[str, str]) -> StatusError:
    violations = [Violation(field, description) for field, description in failure.violations]
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    return StatusError(code, failure.reason, failure_message(failure), violations, metadata)
