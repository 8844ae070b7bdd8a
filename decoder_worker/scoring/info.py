"""What a prm worker serves, and whether it fits an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from thoughtbeam.runtime.scorers import PROCESS_REWARD
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
    """What scores. model_fingerprint, boundary_rule: empty when not recorded. max_rows: rows or texts of one
    call. history_size: values in a projected row; 0: it keeps no history. scorer_id: "" when it does not say.
    mismatch_allowed: it scores what it was not trained for, and says so."""

    kind: str
    hidden_size: int = 0
    model_fingerprint: str = ""
    boundary_rule: str = ""
    max_rows: int = 1
    history_size: int = 0
    scorer_id: str = ""
    mismatch_allowed: bool = False

    @property
    def reads_text(self) -> bool:
        """Whether it reads the texts of thoughts, and not their hidden rows."""
        return self.kind == PROCESS_REWARD

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.kind} {self.scorer_id}".strip()

    @property
    def identity(self) -> tuple[str, str, int]:
        """Scores of scorers that differ in this do not mix."""
        return self.kind, self.scorer_id, self.history_size

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


async def ask(
    stub: ScorerServiceAsyncStub, target: str, timeout: float, *, wait_for_ready: bool = True
) -> ScorerInfo:
    """Asks a prm worker. wait_for_ready: waits up to `timeout` seconds for it to come up.

    Raises ScorerUnreachableError when nobody answers, StatusError for any other answer than the right one.
    """
    try:
        answer = await stub.GetScorerInfo(
            pb.GetScorerInfoRequest(), timeout=timeout, wait_for_ready=wait_for_ready
        )
    except grpc.RpcError as error:
        status = from_rpc_error(error)
        if status.code is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise ScorerUnreachableError(f"no prm worker answers at {target} within {timeout:g} s") from error
        if status.code in NOT_ANSWERED:
            raise ScorerUnreachableError(f"no prm worker answers at {target}: {status.message}") from error
        raise status from error
    return ScorerInfo(
        kind=answer.kind,
        hidden_size=answer.hidden_size,
        model_fingerprint=answer.model_fingerprint,
        boundary_rule=answer.boundary_rule,
        max_rows=answer.max_rows,
        history_size=answer.history_size,
        scorer_id=answer.scorer_id,
        mismatch_allowed=answer.mismatch_allowed,
    )
