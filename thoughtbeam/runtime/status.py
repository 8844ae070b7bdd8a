"""Errors on the wire: google.rpc.Status with ErrorInfo, field violations and retry delays (AIP-193)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

DOMAIN = "thoughtbeam"

# A status travels in trailing metadata, of which a gRPC client takes 8 KiB by default, and the message
# travels twice (in one of them three bytes for each that is not ASCII).
MAX_TEXT_BYTES = 800
MAX_VIOLATIONS_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Violation:
    """A bad field: its path in the request, and what is wrong and what is allowed."""

    field: str
    description: str


@dataclass(slots=True, eq=False)
class StatusError(Exception):
    """An error that is answered to a caller.

    reason: UPPER_SNAKE_CASE. metadata: for ErrorInfo, short values. retry_after: seconds, for RetryInfo and
    the `grpc-retry-pushback-ms` trailer. What does not fit into a status is cut when it is sent.
    """

    code: grpc.StatusCode
    reason: str
    message: str
    violations: Sequence[Violation] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    retry_after: float | None = None

    def __str__(self) -> str:
        return f"{self.code.name}/{self.reason}: {self.message}"


def invalid(*violations: Violation, reason: str = "INVALID_FIELD") -> StatusError:
    """INVALID_ARGUMENT naming the fields."""
    message = "; ".join(f"{v.field}: {v.description}" for v in violations)
    return StatusError(grpc.StatusCode.INVALID_ARGUMENT, reason, message, violations)


def to_status(error: StatusError) -> status_pb2.Status:
    """The google.rpc.Status of an error. A long message is cut, and of many violations the first are sent."""
    details: list[Any] = [
        error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=dict(error.metadata))
    ]
    if error.violations:
        details.append(
            error_details_pb2.BadRequest(
                field_violations=[
                    error_details_pb2.BadRequest.FieldViolation(field=v.field, description=v.description)
                    for v in _that_fit(error.violations)
                ]
            )
        )
    if error.retry_after is not None:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(retry)
    packed = []
    for detail in details:
        item = any_pb2.Any()
        item.Pack(detail)
        packed.append(item)
    return status_pb2.Status(
        code=error.code.value[0], message=_cut(error.message, MAX_TEXT_BYTES), details=packed
    )


def _that_fit(violations: Sequence[Violation]) -> list[Violation]:
    kept: list[Violation] = []
    room = MAX_VIOLATIONS_BYTES
    for violation in violations:
        name, text = _cut(violation.field, 200), _cut(violation.description, 400)
        room -= len(name.encode()) + len(text.encode())
        if room < 0:
            break
        kept.append(Violation(name, text))
    return kept


def _cut(text: str, limit: int) -> str:
    """The text in at most `limit` bytes of UTF-8."""
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode(errors="ignore") + "…"


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: StatusError) -> NoReturn:
    """Ends a call with this error."""
    status = rpc_status.to_status(to_status(error))
    trailers = tuple(status.trailing_metadata)
    if error.retry_after is not None:
        trailers += (("grpc-retry-pushback-ms", str(int(error.retry_after * 1000))),)
    await context.abort(status.code, status.details, trailers)
    raise AssertionError("context.abort returned")


def from_rpc_error(error: grpc.RpcError) -> StatusError:
    """Reads back what `abort` sent; an error from elsewhere has the reason `UNKNOWN`."""
    call = cast(Any, error)  # grpc.RpcError is also the call, synchronous and asynchronous
    status = _status_of(call)
    found = StatusError(call.code() or grpc.StatusCode.UNKNOWN, "UNKNOWN", call.details() or "")
    for item in status.details if status else ():
        info, bad, retry = (
            error_details_pb2.ErrorInfo(),
            error_details_pb2.BadRequest(),
            error_details_pb2.RetryInfo(),
        )
        if item.Unpack(info):
            found.reason, found.metadata = info.reason, dict(info.metadata)
        elif item.Unpack(bad):
            found.violations = tuple(Violation(v.field, v.description) for v in bad.field_violations)
        elif item.Unpack(retry):
            found.retry_after = retry.retry_delay.ToNanoseconds() / 1e9
    return found


def _status_of(call: Any) -> status_pb2.Status | None:
    for key, value in call.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:
                return None  # not ours: something between us and the caller answered
    return None
