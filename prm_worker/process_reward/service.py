"""ScorerService of a text scorer: checks a call, has its traces scored with everyone else's, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np

from prm_worker.process_reward.engine import EngineDiedError, PoolingEngine
from prm_worker.process_reward.keeper import EngineKeeper
from prm_worker.process_reward.prompt import Prompt, build_prompt
from prm_worker.process_reward.tokenizer import ChatError, PromptTokenizer
from prm_worker.scorers.base import Float32Array
from prm_worker.tensors import encode_scores
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.scorers import PROCESS_REWARD
from thoughtbeam.runtime.status import StatusError, Violation, abort, invalid
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1 import scoring_pb2_grpc

log = EventLogger("prm_worker.process_reward.service")

_RETRY_SECONDS = 2.0  # while an engine starts, which takes some ten seconds


class ProcessRewardService(scoring_pb2_grpc.ScorerServiceServicer):
    """Serves one process reward model. max_texts: traces in one call."""

    def __init__(self, tokenizer: PromptTokenizer, keeper: EngineKeeper, max_texts: int) -> None:
        self._tokenizer = tokenizer
        self._keeper = keeper
        self._max_texts = max_texts
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends the calls that run, and refuses further ones."""
        self._closed.set()

    async def ScoreText(  # noqa: N802
        self, request: pb.ScoreTextRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ScoreTextResponse:
        """Scores of the wanted steps, trace after trace.

        INVALID_ARGUMENT names the field that is malformed. UNAVAILABLE with SCORER_STARTING while the
        engine starts, also after it has died, and with PRM_WORKER_STOPPING.
        """
        try:
            scores = await self._score(request)
        except StatusError as error:
            log.warning("score_refused", reason=error.reason, message=error.message)
            await abort(context, error)
        return pb.ScoreTextResponse(scores=encode_scores(scores))

    async def Score(  # noqa: N802
        self, request: pb.ScoreRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.ScoreResponse:
        """FAILED_PRECONDITION with WRONG_SCORER_KIND: a text scorer reads no hidden rows."""
        message = f"this scorer is of kind {PROCESS_REWARD} and scores texts: call ScoreText"
        code = grpc.StatusCode.FAILED_PRECONDITION
        await abort(
            context, StatusError(code, "WRONG_SCORER_KIND", message, metadata={"kind": PROCESS_REWARD})
        )

    async def DropTraces(  # noqa: N802
        self, request: pb.DropTracesRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.DropTracesResponse:
        """Does nothing: the engine's prefix cache makes room by itself, oldest use first."""
        return pb.DropTracesResponse()

    async def GetScorerInfo(  # noqa: N802
        self, request: pb.GetScorerInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.GetScorerInfoResponse:
        """What the scorer is, and the largest call it takes. It reads text, so any model's.

        UNAVAILABLE as ScoreText.
        """
        try:
            engine = self._engine()
        except StatusError as error:
            await abort(context, error)
        return pb.GetScorerInfoResponse(
            kind=PROCESS_REWARD, max_rows=self._max_texts, scorer_id=engine.digest
        )

    async def _score(self, request: pb.ScoreTextRequest) -> Float32Array:
        self._check_open()
        _check(request, self._max_texts)
        engine = self._engine()
        # tokenising long texts takes a while
        prompts = await asyncio.to_thread(self._prompts, request, engine.max_context)
        try:
            return await self._until_closed(engine, prompts)
        except EngineDiedError:
            self._check_open()
            raise _starting() from None
        except StatusError:
            raise
        except Exception as error:
            log.exception("scorer_failed", traces=len(prompts))
            message = f"the scorer failed: {type(error).__name__}"
            raise StatusError(grpc.StatusCode.INTERNAL, "SCORER_FAILED", message) from error

    def _engine(self) -> PoolingEngine:
        try:
            return self._keeper.engine
        except EngineDiedError:
            raise _starting() from None

    async def _until_closed(self, engine: PoolingEngine, prompts: Sequence[Prompt]) -> Float32Array:
        async with task_group() as group:
            closing = group.create_task(self._closed.wait())
            scoring = group.create_task(_all(engine, prompts))
            await asyncio.wait([closing, scoring], return_when=asyncio.FIRST_COMPLETED)
            closing.cancel()
            scoring.cancel()
        self._check_open()
        scores: Float32Array = scoring.result()
        return scores

    def _check_open(self) -> None:
        if self._closed.is_set():
            message = "the prm worker is stopping"
            raise StatusError(grpc.StatusCode.UNAVAILABLE, "PRM_WORKER_STOPPING", message)

    def _prompts(self, request: pb.ScoreTextRequest, max_context: int) -> list[Prompt]:
        return [self._prompt(number, trace, max_context) for number, trace in enumerate(request.traces)]

    def _prompt(self, number: int, trace: pb.TraceText, max_context: int) -> Prompt:
        messages = [(message.role, message.content) for message in trace.messages]
        try:
            return build_prompt(self._tokenizer, messages, trace.steps, trace.first_step, max_context)
        except ChatError as error:
            raise invalid(Violation(f"traces[{number}].messages", str(error))) from None


async def _all(engine: PoolingEngine, prompts: Sequence[Prompt]) -> Float32Array:
    """Scores of all prompts, one after the other."""
    async with task_group() as group:
        scores = [group.create_task(engine.score(prompt)) for prompt in prompts]
    return np.concatenate([one.result() for one in scores])


def _starting() -> StatusError:
    return StatusError(
        grpc.StatusCode.UNAVAILABLE,
        "SCORER_STARTING",
        "the scorer's engine is starting",
        retry_after=_RETRY_SECONDS,
    )


def _check(request: pb.ScoreTextRequest, max_texts: int) -> None:
    """Raises INVALID_ARGUMENT (StatusError) naming the field and what is allowed."""
    if not 1 <= len(request.traces) <= max_texts:
        raise invalid(Violation("traces", f"are {len(request.traces)}; there must be 1 to {max_texts}"))
    for number, trace in enumerate(request.traces):
        name = f"traces[{number}]"
        if not trace.messages:
            raise invalid(Violation(f"{name}.messages", "is empty; there must be at least one"))
        if trace.first_step > len(trace.steps):
            allowed = f"it must be at most the number of steps, {len(trace.steps)}"
            raise invalid(Violation(f"{name}.first_step", f"is {trace.first_step}; {allowed}"))
