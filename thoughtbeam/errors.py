"""What calls raise: one class per gRPC status, with the reason and the details that the service gave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import grpc

from thoughtbeam.runtime import status
from thoughtbeam.runtime.status import Violation as FieldViolation

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "ApiError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FieldViolation",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
]


class ApiError(Exception):
    """A call ended with an error.

    code: the gRPC status. reason: UPPER_SNAKE_CASE, stable, made for programs; `UNKNOWN` when the error
    does not come from the service itself. violations: the bad fields, each with what is allowed. metadata:
    further facts, by name. retry_after: seconds to wait before the same call can succeed, where the service
    named them; infinite where it asks not to be called again. retries: how often the call had been repeated
    when it ended so. tree_id: the search that the call was about, where there is one.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        message: str,
        *,
        reason: str = "UNKNOWN",
        violations: Sequence[FieldViolation] = (),
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        tree_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.violations = tuple(violations)
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.tree_id = tree_id
        self.retries = 0

    def __str__(self) -> str:
        return f"{self.code.name}/{self.reason}: {self.message}"


class CancelledError(ApiError):
    """The call was cancelled."""

    code = grpc.StatusCode.CANCELLED


class UnknownError(ApiError):
    """The other side failed without saying how."""

    code = grpc.StatusCode.UNKNOWN


class InvalidArgumentError(ApiError):
    """The request is wrong, whatever the state of the service; see `violations`."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class DeadlineExceededError(ApiError):
    """Time ran out: the call's own (`CLIENT_TIMEOUT`; its search goes on), or the search's before it could
    run."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class NotFoundError(ApiError):
    """No such tree (`TREE_NOT_FOUND`) or node (`NODE_NOT_FOUND`); from the command line also: no such policy
    (`UNKNOWN_POLICY`)."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExistsError(ApiError):
    """The request id was used before, for another search."""

    code = grpc.StatusCode.ALREADY_EXISTS


class PermissionDeniedError(ApiError):
    """The caller is known and may not do this."""

    code = grpc.StatusCode.PERMISSION_DENIED


class UnauthenticatedError(ApiError):
    """The caller is not known."""

    code = grpc.StatusCode.UNAUTHENTICATED


class ResourceExhaustedError(ApiError):
    """The queue or the store is full; `retry_after` says when to come back, where that is known."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class FailedPreconditionError(ApiError):
    """The service lacks what the request needs, for example a scorer (`NO_SCORER`), or the client was closed
    (`CLIENT_CLOSED`)."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class AbortedError(ApiError):
    """Another owner has taken over."""

    code = grpc.StatusCode.ABORTED


class OutOfRangeError(ApiError):
    """The position asked for is no longer kept: `EVENTS_TRIMMED`, of a search's feed."""

    code = grpc.StatusCode.OUT_OF_RANGE


class UnimplementedError(ApiError):
    """The service is older than this client, or something else listens there."""

    code = grpc.StatusCode.UNIMPLEMENTED


class InternalError(ApiError):
    """A fault of the service."""

    code = grpc.StatusCode.INTERNAL


class UnavailableError(ApiError):
    """Nothing answers, or not now. The only error that calls retry by themselves."""

    code = grpc.StatusCode.UNAVAILABLE


class DataLossError(ApiError):
    """Stored data is gone or broken."""

    code = grpc.StatusCode.DATA_LOSS


CLASSES: Mapping[str, type[ApiError]] = {cls.code.name: cls for cls in ApiError.__subclasses__()}
"""By name of the status."""


def from_rpc_error(error: grpc.RpcError, tree_id: str | None = None) -> ApiError:
    """The exception for what gRPC raised."""
    found = status.from_rpc_error(error)
    delays = [delay for delay in (found.retry_after, _pushback(error)) if delay is not None]
    return CLASSES.get(found.code.name, UnknownError)(
        found.message or found.code.name,
        reason=found.reason,
        violations=found.violations,
        metadata=found.metadata,
        retry_after=max(delays, default=None),
        tree_id=tree_id or found.metadata.get("tree", "").removeprefix("trees/") or None,
    )


def _pushback(error: grpc.RpcError) -> float | None:
    """The delay in seconds that the trailers ask for. What is negative or no number asks for no retry at all
    (gRFC A6)."""
    for key, value in cast(Any, error).trailing_metadata() or ():
        if key == "grpc-retry-pushback-ms":
            try:
                milliseconds = int(value)
            except ValueError:
                return math.inf
            return milliseconds / 1000 if milliseconds >= 0 else math.inf
    return None


def invalid_field(field: str, description: str) -> InvalidArgumentError:
    """A request that this client refuses itself, because the wire could not carry it."""
    violation = FieldViolation(field, description)
    return InvalidArgumentError(f"{field}: {description}", reason="INVALID_FIELD", violations=[violation])
