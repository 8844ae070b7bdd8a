"""Which status a call ends with, by what was raised and by how its tree ended."""

from __future__ import annotations

import dataclasses

import grpc
import pytest

from gateway import mapping
from gateway.admission import queue_full
from gateway.answering import as_status
from gateway.endings import status_of
from tests.unit.gateway.test_mapping import RECORD
from thoughtbeam.runtime.status import StatusError, Violation
from tree_store.errors import (
    EventsTrimmedError,
    NodeNotFoundError,
    RequestReusedError,
    SequenceGapError,
    StoreFullError,
    StoreUnavailableError,
    TreeNotFoundError,
)
from tree_store.model import Failure, TreeState

CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (StatusError(CODE.ABORTED, "STALE_EPOCH", "stale"), CODE.ABORTED, "STALE_EPOCH"),
        (TreeNotFoundError("no tree 1"), CODE.NOT_FOUND, "TREE_NOT_FOUND"),
        (NodeNotFoundError("tree 1 has no node 2"), CODE.NOT_FOUND, "NODE_NOT_FOUND"),
        (EventsTrimmedError("tree 1"), CODE.OUT_OF_RANGE, "EVENTS_TRIMMED"),
        (RequestReusedError("tree 1"), CODE.ALREADY_EXISTS, "REQUEST_ID_REUSED"),
        (StoreFullError("secret"), CODE.RESOURCE_EXHAUSTED, "STORE_FULL"),
        (StoreUnavailableError("secret"), CODE.UNAVAILABLE, "STORE_UNAVAILABLE"),
        (SequenceGapError("bug"), CODE.INTERNAL, "INTERNAL"),
        (ValueError("the question was: secret"), CODE.INTERNAL, "INTERNAL"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_is_raised_has_a_status(error: Exception, code: grpc.StatusCode, reason: str) -> None:
    status = as_status(error)

    assert (status.code, status.reason) == (code, reason)
    assert "secret" not in status.message


@pytest.mark.parametrize(
    ("state", "failure", "code", "reason"),
    [
        (TreeState.CANCELLED, None, CODE.CANCELLED, "TREE_CANCELLED"),
        (
            TreeState.EXPIRED,
            Failure(4, "DEADLINE_EXCEEDED", "late"),
            CODE.DEADLINE_EXCEEDED,
            "DEADLINE_EXCEEDED",
        ),
        (TreeState.FAILED, Failure(9, "NO_SCORER", "train"), CODE.FAILED_PRECONDITION, "NO_SCORER"),
        (TreeState.FAILED, Failure(99, "ODD", "?"), CODE.UNKNOWN, "ODD"),
        (TreeState.RUNNING, None, CODE.UNAVAILABLE, "GATEWAY_STOPPING"),
        (TreeState.QUEUED, None, CODE.UNAVAILABLE, "GATEWAY_STOPPING"),
    ],
)
def test_a_call_ends_as_its_tree(
    state: TreeState, failure: Failure | None, code: grpc.StatusCode, reason: str
) -> None:
    status = status_of(dataclasses.replace(RECORD, state=state, failure=failure))

    assert status is not None
    assert (status.code, status.reason) == (code, reason)
    assert status.metadata == {"tree": f"trees/{RECORD.tree_id}"}


def test_a_full_queue_says_when_to_come_back() -> None:
    status = queue_full(10)

    assert (status.code, status.reason, status.retry_after) == (CODE.RESOURCE_EXHAUSTED, "QUEUE_FULL", 2.0)
    assert status.metadata == {"max_queued": "10"}
    assert "10 trees are waiting" in status.message


def test_violations_of_a_failure_reach_the_caller() -> None:
    failure = Failure(3, "INVALID_FIELD", "bad", (("search.parameters.K", "at most 12"),))
    status = status_of(dataclasses.replace(RECORD, state=TreeState.FAILED, failure=failure))

    assert status is not None
    assert list(status.violations) == [Violation("search.parameters.K", "at most 12")]


def test_the_text_of_an_internal_error_stays_inside() -> None:
    failure = Failure(13, "SEARCH_FAILED", "cannot connect to secret:50551")
    record = dataclasses.replace(RECORD, state=TreeState.FAILED, failure=failure)
    status = status_of(record)

    assert status is not None
    assert (status.code, status.reason) == (CODE.INTERNAL, "SEARCH_FAILED")
    assert "secret" not in status.message
    assert "secret" not in str(mapping.tree(record, None))


def test_success_is_no_error() -> None:
    assert status_of(dataclasses.replace(RECORD, state=TreeState.SUCCEEDED)) is None
