"""kill -9 of the engine inside a prm worker: calls may be repeated, it comes back, and searches go on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import pytest
from grpc import StatusCode

from decoder_worker.engine.scripted import ScriptedConfig
from decoder_worker.scoring.client import ScoringClient
from tests.fault.processes import PATIENCE
from tests.integration.decoder_worker.harness import RecordingEngine, drawn, ended, feed, rounds, working
from tests.integration.prm_worker.serving import eventually, free_port
from tests.process_reward_model import Reference
from thoughtbeam.runtime.probe import SERVING, health
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub
from tree_store.embedded import EmbeddedServer
from tree_store.model import TreeState

pytestmark = pytest.mark.timeout(900)

GAMBIT = {"C": 8, "K": 2, "interval": 8, "warmup": 40, "N_max": 8}


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(tmp_path_factory.mktemp("valkey")) as server:
        yield server.url


@dataclass
class PrmWorker:
    """A prm worker of its own process. process: it, as asyncio knows it."""

    process: asyncio.subprocess.Process
    port: int
    log: Path

    def engine(self) -> list[psutil.Process]:
        """The processes of its engine: those that Python's multiprocessing has spawned, and theirs."""
        children = psutil.Process(self.process.pid).children()
        spawned = [child for child in children if "resource_tracker" not in " ".join(child.cmdline())]
        return [process for child in spawned for process in (child, *child.children(recursive=True))]

    async def state(self) -> str:
        assert self.process.returncode is None, self.log.read_text()
        return await asyncio.to_thread(health, f"127.0.0.1:{self.port}")

    async def until_serving(self) -> None:
        async with asyncio.timeout(3 * PATIENCE):
            while await self.state() != SERVING:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.1)


@asynccontextmanager
async def prm_worker(folder: Path) -> AsyncIterator[PrmWorker]:
    """`python -m prm_worker --process-reward`, once it serves. Killed at the end if it has not ended."""
    reference = Reference()
    reference.model.save(folder / "model", reference.tokenizer)
    port, log = free_port(), folder / "log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "prm_worker", "--listen", f"127.0.0.1:{port}"),
            *("--process-reward", str(folder / "model"), "--dtype", "float32"),
            stdout=output,
            stderr=output,
        )
    worker = PrmWorker(process, port, log)
    try:
        await worker.until_serving()
        yield worker
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def request(question: str) -> pb.ScoreTextRequest:
    message = pb.TraceText.Message(role="user", content=question)
    return pb.ScoreTextRequest(traces=[pb.TraceText(messages=[message], steps=["so", "", "<extra_0>"])])


async def scores(stub: Any, question: str) -> list[float]:
    answer = await stub.ScoreText(request(question), timeout=PATIENCE)
    return list(np.frombuffer(answer.scores.data, "<f4"))


async def refusal(call: Any) -> tuple[StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = from_rpc_error(caught.value)
    return error.code, error.reason


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until_gone(processes: list[psutil.Process]) -> None:
    """A process that is still importing vLLM notices only then that it is alone."""
    async with asyncio.timeout(2 * PATIENCE):
        while any(map(alive, processes)):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_the_engine_of_a_prm_worker_is_killed_and_searches_go_on(
    tmp_path: Path, redis_url: str
) -> None:
    async with (
        prm_worker(tmp_path) as worker,
        open_channel(f"127.0.0.1:{worker.port}") as channel,
    ):
        stub: Any = ScorerServiceStub(channel)
        before = await scores(stub, "What is 6 times 7?")
        assert len(before) == 3

        scoring = ScoringClient(f"127.0.0.1:{worker.port}", "scripted", "blank_line", 6 * PATIENCE)
        await scoring.info()
        engine = RecordingEngine(drawn(4), ScriptedConfig(slots=8))
        async with working(redis_url, engine, scoring=scoring) as bench:
            engine.pace(30)  # some thoughts of each trace
            tree_id = await bench.start("gambit", seconds=6 * PATIENCE, parameters=GAMBIT)

            async def some_are_scored() -> bool:
                return any(node.mean_score is not None for node in await bench.store.nodes(tree_id, count=8))

            await eventually(some_are_scored)

            # held, so that a call is certainly inside when it dies
            first = worker.engine()
            assert first
            for process in first:
                process.suspend()
            inside = stub.ScoreText(request("And 7 times 8?"), timeout=PATIENCE)
            await asyncio.sleep(1)
            assert not inside.done()
            for process in first:
                process.kill()
            assert await refusal(inside) == (StatusCode.UNAVAILABLE, "SCORER_STARTING")
            assert await worker.state() == "NOT_SERVING"
            later = stub.ScoreText(request("And 8 times 9?"), timeout=PATIENCE)
            assert await refusal(later) == (StatusCode.UNAVAILABLE, "SCORER_STARTING")
            await until_gone(first)

            generated = engine.generated
            engine.pace(200)

            async def decoding_goes_on() -> bool:
                return engine.generated > generated

            await eventually(decoding_goes_on)
            assert await worker.state() == "NOT_SERVING"

            await worker.until_serving()
            assert await scores(stub, "What is 6 times 7?") == pytest.approx(before, abs=1e-5)
            engine.pace(1_000_000)
            record = await ended(bench.store, tree_id)
            held = rounds(await feed(bench.store, tree_id))
        await scoring.close()

        assert record.state is TreeState.SUCCEEDED
        assert record.outcome is not None
        assert not record.outcome.degraded
        assert held

        family = worker.engine()
        assert family
        assert not set(family) & set(first)
        worker.process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.process.wait(), PATIENCE) == 0
        await until_gone(family)
        log = worker.log.read_text()
        assert " engine_died after=" in log
        assert log.count(" engine_started ") == 2
        assert " stopped" in log
        assert "scorer_failed" not in log
        assert "Exception ignored" not in log


async def test_killed_with_its_engine_starting_it_leaves_nothing_behind(tmp_path: Path) -> None:
    reference = Reference()
    reference.model.save(tmp_path / "model", reference.tokenizer)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prm_worker", "--listen", "127.0.0.1:0"),
        *("--process-reward", str(tmp_path / "model")),
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    worker = PrmWorker(process, 0, tmp_path)

    async def started() -> bool:
        assert process.returncode is None
        return bool(worker.engine())

    try:
        async with asyncio.timeout(PATIENCE):
            while not await started():  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        family = worker.engine()
        os.kill(process.pid, signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 128 + signal.SIGTERM
        await until_gone(family)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
