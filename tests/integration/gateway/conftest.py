"""A Redis for these tests: the embedded Valkey, or what TEST_REDIS_URL names (it is emptied)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.config import GatewayConfig
from tests.integration.discipline import leaves_nothing_behind
from tests.integration.gateway.harness import Gateway, running_gateway
from tree_store.embedded import EmbeddedServer

__all__ = ["leaves_nothing_behind"]


@pytest.fixture(scope="package")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if url := os.environ.get("TEST_REDIS_URL"):
        yield url
        return
    directory: Path = tmp_path_factory.mktemp("valkey")
    with EmbeddedServer(directory) as server:
        yield server.url


@pytest.fixture
async def redis(server_url: str) -> AsyncIterator[Redis]:
    """A client on an empty database."""
    async with Redis.from_url(server_url, protocol=2) as client:
        await client.flushdb()
        yield client


@pytest.fixture
def config(server_url: str, redis: Redis) -> GatewayConfig:
    """Quick to notice what is lost and to hand out, patient with a slow machine."""
    return GatewayConfig(
        redis_url=server_url,
        reap_interval=0.1,
        dispatch_rate=1000,
        lease=3600.0,
        cancel_wait=30.0,
        grace=30.0,
    )


@pytest.fixture
async def gateway(config: GatewayConfig) -> AsyncIterator[Gateway]:
    async with running_gateway(config) as running:
        yield running
