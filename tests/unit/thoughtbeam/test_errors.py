from __future__ import annotations

from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

import thoughtbeam
from thoughtbeam.errors import ApiError, from_rpc_error
from thoughtbeam.runtime.status import StatusError, Violation, to_status


class Ended(grpc.RpcError):
    """What a call raises that has ended with this status."""

    def __init__(
        self, code: grpc.StatusCode, details: str, trailers: tuple[tuple[str, str | bytes], ...] = ()
    ) -> None:
        self._code, self._details, self._trailers = code, details, trailers

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailers


@pytest.mark.parametrize("code", [c for c in grpc.StatusCode if c is not grpc.StatusCode.OK])
def test_every_status_has_a_public_class_of_its_own(code: grpc.StatusCode) -> None:
    error = from_rpc_error(Ended(code, "why"))

    assert error.code is code
    assert type(error) is not ApiError
    assert getattr(thoughtbeam, type(error).__name__) is type(error)
    assert str(error) == f"{code.name}/UNKNOWN: why"


def test_all_details_are_kept() -> None:
    sent = StatusError(
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "two things",
        violations=(Violation("search.policy", "unknown"), Violation("search.profile", "unknown")),
        metadata={"tree": "trees/t1"},
        retry_after=1.5,
    )
    status = rpc_status.to_status(to_status(sent))
    raised = Ended(status.code, status.details, tuple(status.trailing_metadata))

    error = from_rpc_error(raised)

    assert isinstance(error, thoughtbeam.InvalidArgumentError)
    assert (error.reason, error.message) == ("INVALID_FIELD", "two things")
    assert [v.field for v in error.violations] == ["search.policy", "search.profile"]
    assert error.metadata == {"tree": "trees/t1"}
    assert error.retry_after == 1.5
    assert error.tree_id == "t1"
