"""A real gateway whose worker answers every search."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.gateway.conftest import config, redis, server_url
from tests.integration.gateway.harness import Gateway, running_gateway
from tests.integration.sdk.answering_worker import AnsweringWorker, answering_worker
from tests.integration.sdk.breakable_link import BreakableLink, breakable_link

__all__ = ["config", "redis", "server_url"]


@pytest.fixture
async def gateway(config: object) -> AsyncIterator[Gateway]:
    async with running_gateway(config) as running:
        yield running


@pytest.fixture
async def worker(gateway: Gateway) -> AsyncIterator[AnsweringWorker]:
    async with answering_worker(gateway) as connected:
        yield connected


@pytest.fixture
async def link(gateway: Gateway) -> AsyncIterator[BreakableLink]:
    async with breakable_link(gateway.port) as up:
        yield up
