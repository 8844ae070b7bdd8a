"""How a prm worker ends: at once while it starts; once it serves, without losing a call that runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from grpc import StatusCode
from grpc.aio import AioRpcError

from prm_worker.config import PrmWorkerConfig
from prm_worker.scoring_service import SERVICE
from prm_worker.server import serve
from tests.integration.prm_worker.clients import Inbox, assert_right, client_of, row_of
from tests.integration.prm_worker.serving import HIDDEN, TRAINED_FOR, WEIGHTS, eventually, free_port, served
from tests.integration.prm_worker.test_score import request_of, scores_of
from tests.unit.prm_worker.gated import GatedScorer
from tests.unit.prm_worker.weights import direct_scores
from thoughtbeam.runtime.probe import SERVING, health
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub

ROWS = torch.ones(2, HIDDEN)


@dataclass(frozen=True, slots=True)
class Stopping:
    """A worker with a call in the middle of its pass, that has been sent SIGTERM."""

    stub: Any
    port: int
    call: Any
    ended: asyncio.Task[None]


async def healthy(port: int, service: str = SERVICE) -> str:
    return await asyncio.to_thread(health, f"127.0.0.1:{port}", service)


@asynccontextmanager
async def stopping(scorer: GatedScorer, grace: float) -> AsyncIterator[Stopping]:
    port = free_port()
    config = PrmWorkerConfig(listen=f"127.0.0.1:{port}", scorer=Path("none"), grace=grace)
    serving = asyncio.create_task(serve(config, scorer, TRAINED_FOR))
    loop = asyncio.get_running_loop()
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:

            async def is_up() -> bool:
                return await healthy(port) == SERVING

            await eventually(is_up)
            stub: Any = ScorerServiceStub(channel)
            scorer.gate.clear()
            scorer.entered.clear()
            call = stub.Score(request_of(ROWS))
            await asyncio.to_thread(scorer.entered.wait, 10)
            os.kill(os.getpid(), signal.SIGTERM)
            yield Stopping(stub, port, call, serving)
            await serving
    finally:
        scorer.gate.set()
        serving.cancel()
        await asyncio.wait([serving])
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def test_a_call_that_runs_is_answered_and_new_ones_are_refused() -> None:
    scorer = GatedScorer(WEIGHTS)
    async with stopping(scorer, grace=30) as worker:

        async def is_down() -> bool:
            return await healthy(worker.port) != SERVING

        await eventually(is_down)
        with pytest.raises(AioRpcError) as caught:
            await worker.stub.Score(request_of(ROWS), timeout=10)
        assert caught.value.code() is StatusCode.UNAVAILABLE
        assert not worker.call.done()

        scorer.gate.set()
        assert scores_of(await worker.call) == pytest.approx(direct_scores(WEIGHTS, ROWS), abs=1e-6)
        # it does not wait for the rest of its grace
        await asyncio.wait_for(worker.ended, 20)


async def test_a_call_that_does_not_end_in_time_may_be_repeated() -> None:
    scorer = GatedScorer(WEIGHTS)
    async with stopping(scorer, grace=0.2) as worker:
        with pytest.raises(AioRpcError) as caught:
            await worker.call
        scorer.gate.set()

    error = from_rpc_error(caught.value)
    assert (error.code, error.reason) == (StatusCode.UNAVAILABLE, "PRM_WORKER_STOPPING")


async def test_rows_of_a_worker_that_stops_are_scored_by_the_next() -> None:
    scorer = GatedScorer(WEIGHTS)
    box = Inbox()
    async with (
        stopping(scorer, grace=0.2) as worker,
        client_of(f"127.0.0.1:{worker.port}", deadline=60) as client,
    ):
        client.submit([row_of("tree", 1, 0)], box.deliver)
        with pytest.raises(AioRpcError):
            await worker.call
        scorer.gate.set()
        await worker.ended
        async with served(port=worker.port):
            assert_right(await box.wait_for(1))


PROGRAM = """
import asyncio, sys
from pathlib import Path
from prm_worker.config import PrmWorkerConfig
from prm_worker.server import serve
from tests.integration.prm_worker.serving import TRAINED_FOR, WEIGHTS
from tests.unit.prm_worker.gated import GatedScorer
from thoughtbeam.runtime.signals import ending_at_once

scorer = GatedScorer(WEIGHTS)
scorer.gate.clear()
with ending_at_once():
    asyncio.run(serve(PrmWorkerConfig(listen=sys.argv[1], scorer=Path("none")), scorer, TRAINED_FOR))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_during_the_warm_up_ends_it_at_once(number: signal.Signals) -> None:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, f"127.0.0.1:{port}"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )

    async def answers() -> bool:
        assert process.returncode is None
        found = await healthy(port)
        assert found != SERVING, "its first pass has not ended"
        return found == "NOT_SERVING"

    await eventually(answers)
    started = time.monotonic()
    process.send_signal(number)
    output, errors = await process.communicate()

    assert process.returncode == 128 + number
    assert (output, errors) == (b"", b"")
    # the pass would have been waited for ten seconds
    assert time.monotonic() - started < 5
