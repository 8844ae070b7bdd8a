"""A prm worker for tests: in this process on loopback, or a real process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prm_worker.batcher import Batcher
from prm_worker.scorer_file import Metadata
from prm_worker.scorers.base import Scorer
from prm_worker.scorers.mlp import MlpScorer
from prm_worker.scoring_service import SERVICE, ScoringService
from tests.unit.prm_worker.weights import step_weights
from thoughtbeam.runtime.rpc import open_channel, start_server
from thoughtbeam.v1.scoring_pb2_grpc import add_ScorerServiceServicer_to_server

HIDDEN = 16
WEIGHTS = step_weights(HIDDEN)
TRAINED_FOR = Metadata("mlp", HIDDEN, "a-model", "blank_line")


@dataclass(frozen=True, slots=True)
class Served:
    target: str
    batcher: Batcher


@asynccontextmanager
async def served(
    trained_for: Metadata = TRAINED_FOR,
    max_rows: int = 512,
    port: int = 0,
    scorer: Scorer | None = None,
    allow_mismatch: bool = False,
) -> AsyncIterator[Served]:
    """The real service with the real scorer on a real socket. port: 0 is any free one."""
    scorer = scorer or MlpScorer(WEIGHTS)
    batcher = Batcher(scorer, max_rows)
    service = ScoringService(batcher, trained_for, scorer, allow_mismatch=allow_mismatch)
    server = await start_server(
        f"127.0.0.1:{port}", [lambda server: add_ScorerServiceServicer_to_server(service, server)], [SERVICE]
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(batcher.run())
        try:
            yield Served(f"127.0.0.1:{server.port}", batcher)
        finally:
            await server.stop(grace=0)
            task.cancel()


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Waits for something that is going to be true."""
    async with asyncio.timeout(60):
        while not await true():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Worker:
    process: asyncio.subprocess.Process

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def stop(self) -> tuple[int, bytes, bytes]:
        """Stops it as a service manager does: exit status, stdout, stderr."""
        self.send(signal.SIGTERM)
        output, errors = await asyncio.wait_for(self.process.communicate(), 20)
        assert self.process.returncode is not None
        return self.process.returncode, output, errors


async def start_worker(port: int, scorer: Path, *flags: str) -> Worker:
    """`python -m prm_worker`, once its health says SERVING."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "prm_worker", "--listen", f"127.0.0.1:{port}", "--scorer", str(scorer), *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "THOUGHTBEAM_LOG_LEVEL": "INFO"},
    )
    try:
        async with asyncio.timeout(60):
            await _until_serving(port, process)
    except BaseException:
        process.kill()
        await process.wait()
        raise
    return Worker(process)


async def _until_serving(port: int, process: asyncio.subprocess.Process) -> None:
    async with open_channel(f"127.0.0.1:{port}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        while True:
            assert process.returncode is None, "the worker ended at its start"
            try:
                answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=5)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.1)
                continue
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return
            await asyncio.sleep(0.02)
