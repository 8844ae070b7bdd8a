"""Errors on the wire: what is raised in a servicer is what a caller reads, over a real channel."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import (
    StatusError,
    Violation,
    abort,
    from_rpc_error,
    invalid,
    to_status,
)

Raise = Callable[[Exception], Awaitable[grpc.aio.AioRpcError]]


@pytest.fixture(scope="module")
async def answer_with() -> AsyncIterator[Raise]:
    """Calls a method over a real channel that answers with the given error; gives the caller's."""
    pending: list[Exception] = []

    async def handler(request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        error = pending.pop()
        if isinstance(error, StatusError):
            await abort(context, error)
        raise error

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(handler)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Service", {"Fail": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:

        async def call(error: Exception) -> grpc.aio.AioRpcError:
            pending.append(error)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/test.Service/Fail")(b"")
            return caught.value

        yield call
    await server.stop(None)


@pytest.mark.parametrize(
    "error",
    [
        invalid(Violation("search.policy", "unknown"), Violation("search.parameters.K", "at most 12, is 13")),
        StatusError(grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND", "no tree trees/1", metadata={"tree": "1"}),
        StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "try later", retry_after=1.5),
        StatusError(grpc.StatusCode.ABORTED, "STALE_EPOCH", "größer ≥ 2"),
    ],
    ids=lambda error: error.reason,
)
async def test_a_caller_reads_what_was_raised(answer_with: Raise, error: StatusError) -> None:
    read = from_rpc_error(await answer_with(error))

    assert (read.code, read.reason, read.message) == (error.code, error.reason, error.message)
    assert list(read.violations) == list(error.violations)
    assert dict(read.metadata) == dict(error.metadata)
    assert read.retry_after == error.retry_after


async def test_a_retry_delay_is_sent_twice(answer_with: Raise) -> None:
    # gRPC's own retries obey the trailer, clients that look at the details read RetryInfo
    error = await answer_with(
        StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "try later", retry_after=0.25)
    )

    assert ("grpc-retry-pushback-ms", "250") in tuple(error.trailing_metadata())
    assert from_rpc_error(error).retry_after == 0.25


async def test_an_error_from_elsewhere_has_no_reason(answer_with: Raise) -> None:
    read = from_rpc_error(await answer_with(ValueError("bug")))

    assert (read.code, read.reason, read.violations) == (grpc.StatusCode.UNKNOWN, "UNKNOWN", ())


@pytest.mark.parametrize("letter", ["x", "ü", "语"])
async def test_a_status_too_large_for_trailing_metadata_is_cut_not_lost(
    answer_with: Raise, letter: str
) -> None:
    error = invalid(*(Violation(f"search.parameters.p{i}", letter * 300) for i in range(500)))

    read = from_rpc_error(await answer_with(error))

    assert (read.code, read.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    assert read.message.endswith("…")
    assert 1 < len(read.violations) < 500
    assert read.violations[0].field == "search.parameters.p0"


def test_details_are_the_standard_messages() -> None:
    status = to_status(invalid(Violation("name", "must be trees/{id}")))

    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(bad)
    assert (info.reason, info.domain) == ("INVALID_FIELD", "thoughtbeam")
    assert bad.field_violations[0].field == "name"
    assert rpc_status.to_status(status).code is grpc.StatusCode.INVALID_ARGUMENT


def test_details_that_are_no_status_are_ignored() -> None:
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff")),
        "proxy says no",
    )

    read = from_rpc_error(error)

    assert (read.code, read.reason, read.message) == (
        grpc.StatusCode.UNAVAILABLE,
        "UNKNOWN",
        "proxy says no",
    )


def test_an_error_prints_its_code_reason_and_message() -> None:
    error = StatusError(grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND", "no such tree")

    assert str(error) == "NOT_FOUND/TREE_NOT_FOUND: no such tree"
    assert len({error, error}) == 1  # hashable, as the traceback machinery expects of an exception
