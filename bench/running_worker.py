"""A decoder worker to be measured: on a paced engine, with a real store and a real prm worker beside it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from bench.paced_engine import PacedEngine
from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.garbage import calm_collector
from decoder_worker.scoring.client import ScoringClient
from decoder_worker.worker import Worker, WorkerConfig
from thoughtbeam.models import BUNDLED_SCORER
from thoughtbeam.supervision.probes import free_ports, grpc_serves
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.embedded import EmbeddedServer
from tree_store.model import NewTree
from tree_store.store import TreeStore

_START_SECONDS = 60.0
_LEASE = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """A worker and what it works with."""

    worker: Worker
    engine: PacedEngine
    store: TreeStore

    async def begin(self, policy: str, parameters: dict[str, Any]) -> str:
        """Gives it a new tree, as a gateway would. Returns the tree's id."""
        search = pb.Search(question="Start with 871.", policy=policy)
        search.parameters.update(parameters)
        tree_id = str(uuid.uuid4())
        text = json_format.MessageToJson(search)
        new = NewTree(tree_id, text, "", "made up", policy, "paper", "", time.time() + 3600)
        await self.store.create(new)
        assigned = await self.store.assign(tree_id, self.worker.config.name, _LEASE)
        self.worker.begin(tree_id, assigned.epoch, search)
        return tree_id

    async def filled(self, traces: int) -> None:
        """Waits until the engine has so many traces."""
        async with asyncio.timeout(_START_SECONDS):
            while self.engine.running < traces:  # noqa: ASYNC110 - nothing announces it
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running_worker(engine: PacedEngine, redis_url: str, scorer: str) -> AsyncIterator[RunningWorker]:
    """A worker for the length of the block; what it runs then goes back to the queue. scorer: host:port."""
    store, of_worker = TreeStore.connect(redis_url), TreeStore.connect(redis_url)
    info = engine.info
    scoring = ScoringClient(scorer, info.fingerprint, info.boundary_rule, 30.0, hidden_size=info.hidden_size)
    stop, up = asyncio.Event(), asyncio.Event()

    async def link() -> None:
        up.set()
        await asyncio.Event().wait()

    calm_collector()  # as the program does
    try:
        await scoring.info()
        async with Equivalence() as equivalence:
            config = WorkerConfig("bench", "paper", info.slots, lease_seconds=_LEASE, drain_seconds=0.0)
            worker = Worker(config, engine, of_worker, scoring, equivalence)
            running = asyncio.create_task(worker.run(stop, link, hurry=stop))
            try:
                await up.wait()
                yield RunningWorker(worker, engine, store)
            finally:
                stop.set()
                await running
    finally:
        await scoring.close()
        await of_worker.close()
        await store.close()


@contextmanager
def store_and_scorer() -> Iterator[tuple[str, str]]:
    """An embedded Valkey (its URL) and a prm worker with the bundled scorer (host:port)."""
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer(folder, maxmemory="8gb") as server,
        running_prm_worker(BUNDLED_SCORER) as target,
    ):
        yield server.url, target


@contextmanager
def running_prm_worker(scorer: Path, *flags: str) -> Iterator[str]:
    """A prm worker with the scorer of a file: its host:port."""
    (port,) = free_ports(1)
    target = f"127.0.0.1:{port}"
    command = [sys.executable, "-P", "-m", "prm_worker", "--listen", target, "--scorer", str(scorer), *flags]
    environment = {**os.environ, "no_grpc_proxy": "127.0.0.1,localhost"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as prm_worker:
        try:
            until = time.monotonic() + _START_SECONDS
            while not grpc_serves(port):
                if prm_worker.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the prm worker did not start")
                time.sleep(0.1)
            yield target
        finally:
            prm_worker.terminate()
