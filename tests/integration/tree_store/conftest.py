"""The servers that the tree store is tested on: the embedded Valkey, and any that TEST_REDIS_URL names."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
import redis

from tests.integration.tree_store.helpers import Client
from tree_store import scripts
from tree_store.embedded import EmbeddedServer
from tree_store.store import TreeStore


@pytest.fixture(scope="session", params=["embedded", "external"])
def redis_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own for the tests, or the one named; of that, all keys of ours are deleted."""
    if request.param == "embedded":
        with EmbeddedServer(tmp_path_factory.mktemp("valkey")) as server:
            yield server.url
        return
    url = os.environ.get("TEST_REDIS_URL")
    if not url:
        no_server = pytest.fail if os.environ.get("CI") else pytest.skip
        no_server("TEST_REDIS_URL names no server")
    yield url


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """Looks at the server as a person with redis-cli does. The store is empty at first."""
    with redis.Redis.from_url(
        redis_url, protocol=2, decode_responses=True, encoding_errors="replace"
    ) as found:
        for key in found.scan_iter("tb:*"):
            found.delete(key)
        yield found


@pytest_asyncio.fixture
async def store(redis_url: str, client: Client) -> AsyncIterator[TreeStore]:
    found = TreeStore.connect(redis_url)
    for name in scripts.names():
        # so that a test which counts replies sees one per script
        client.script_load(scripts.source(name))
    yield found
    await found.close()
