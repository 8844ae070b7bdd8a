"""What a prm worker serves, and whether it fits an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1 import scoring_pb2 as pb

if TYPE_CHECKING:
    from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceAsyncStub

# What comes back from a server that dies, stops or hangs. Scoring has no effects: asking again is safe.
NOT_ANSWERED = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


class ScorerMismatchError(RuntimeError):
    """The scorer was trained for another model, boundary rule or hidden size; the message says which."""


class ScorerUnreachableError(RuntimeError):
    """No prm worker answered."""


@dataclass(frozen=True, slots=True)
class ScorerInfo:
    """What the prm worker serves. model_fingerprint, boundary_rule: empty when not recorded."""

    kind: str
    hidden_size: int
    model_fingerprint: str
    boundary_rule: str
    max_rows: int

    def differences(
        self, model_fingerprint: str, boundary_rule: str, hidden_size: int | None
    ) -> Sequence[str]:
        """In what it does not fit an engine; what either side does not say (empty, None) is not compared."""
        pairs: Sequence[tuple[str, object, object]] = (
            ("model_fingerprint", self.model_fingerprint, model_fingerprint),
            ("boundary_rule", self.boundary_rule, boundary_rule),
            ("hidden_size", self.hidden_size, hidden_size),
        )
        return [
            f"{name} {theirs} (the engine's is {own})"
            for name, theirs, own in pairs
            if theirs and own and theirs != own
        ]


async def ask(stub: ScorerServiceAsyncStub, target: str, timeout: float) -> ScorerInfo:
    """Asks a prm worker, waiting up to `timeout` seconds for it to come up.

    Raises ScorerUnreachableError when nobody answers, StatusError for any other answer than the right one.
    """
    try:
        answer = await stub.GetScorerInfo(pb.GetScorerInfoRequest(), timeout=timeout, wait_for_ready=True)
    except grpc.RpcError as error:
        status = from_rpc_error(error)
        if status.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise ScorerUnreachableError(f"no prm worker answers at {target} within {timeout:g} s") from error
        if status.code in NOT_ANSWERED:
            raise ScorerUnreachableError(f"no prm worker answers at {target}: {status.message}") from error
        raise status from error
    return ScorerInfo(
        answer.kind, answer.hidden_size, answer.model_fingerprint, answer.boundary_rule, answer.max_rows
    )
