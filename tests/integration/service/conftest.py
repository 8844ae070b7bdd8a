"""The whole service in this process: real vLLM, real gateway, real prm worker, real Valkey, real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.embedding.choice import embedder_loader
from decoder_worker.embedding.queue import EmbeddingQueue
from decoder_worker.engine.vllm_engine import VllmEngine
from decoder_worker.gateway_link import GatewayLink
from decoder_worker.scoring.client import ScoringClient
from decoder_worker.worker import Worker, WorkerConfig
from gateway.config import GatewayConfig
from prm_worker.scorer_file import load_scorer
from tests.integration.gateway.harness import Gateway, running_gateway
from tests.integration.prm_worker.serving import served
from thoughtbeam import AsyncClient
from thoughtbeam.models import BUNDLED_SCORER
from tree_store.embedded import EmbeddedServer
from tree_store.store import TreeStore

# 4 finished traces of 8 would do, but the tiny profile's C = 24 does not fit into the test engine's KV cache
SMALL_GAMBIT = {"C": 8, "K": 2, "N_max": 8, "interval": 12, "warmup": 40}


@dataclass(frozen=True, slots=True)
class Service:
    """What is running, and where."""

    client: AsyncClient
    gateway: Gateway
    store: TreeStore
    engine: VllmEngine
    scorer: str
    redis_url: str


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(tmp_path_factory.mktemp("service-valkey")) as server:
        yield server.url


@pytest.fixture
async def service(vllm_engine: VllmEngine, valkey: str) -> AsyncIterator[Service]:
    """All but the decoder worker, which a test starts with `working`."""
    scorer, trained_for = load_scorer(BUNDLED_SCORER, "cpu")
    async with (
        served(trained_for, scorer=scorer) as prm,
        running_gateway(
            GatewayConfig(redis_url=valkey, reap_interval=0.1, cancel_wait=30.0, grace=30.0)
        ) as gateway,
        AsyncClient(f"127.0.0.1:{gateway.port}") as client,
    ):
        yield Service(client, gateway, gateway.store, vllm_engine, prm.target, valkey)


@asynccontextmanager
async def working(
    service: Service, *, name: str = "worker", scorer: str = "", scorer_deadline: float = 60.0
) -> AsyncIterator[Worker]:
    """A decoder worker for the length of the block; then it hands back what it runs, as at two SIGTERMs."""
    info = service.engine.info
    scoring = ScoringClient(
        scorer or service.scorer,
        info.fingerprint,
        info.boundary_rule,
        scorer_deadline,
        hidden_size=info.hidden_size,
    )
    stop = asyncio.Event()
    store = TreeStore.connect(service.redis_url)
    load = embedder_loader(None)
    assert load is not None, "requirements/cpu.txt has the model"
    embedding = EmbeddingQueue(load)
    try:
        if not scorer:
            await scoring.info()
        async with Equivalence() as equivalence:
            config = WorkerConfig(name, "tiny", 512, lease_seconds=10.0, drain_seconds=0.0, scorer_kind="mlp")
            worker = Worker(config, service.engine, store, scoring, equivalence, embedding)
            connected = asyncio.Event()

            async def on_state(up: bool) -> None:
                if up:
                    connected.set()

            link = GatewayLink(f"127.0.0.1:{service.gateway.port}", worker, on_state)
            running = asyncio.create_task(worker.run(stop, link.run))
            try:
                await connected.wait()
                yield worker
            finally:
                stop.set()
                await running
    finally:
        await embedding.close()
        await scoring.close()
        await store.close()


@pytest.fixture
async def worker(service: Service) -> AsyncIterator[Worker]:
    async with working(service) as worker:
        yield worker
