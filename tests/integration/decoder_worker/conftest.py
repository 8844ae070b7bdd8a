"""One Valkey for all these tests; each makes trees of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.discipline import leaves_nothing_behind
from tree_store.embedded import EmbeddedServer

__all__ = ["leaves_nothing_behind"]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedServer(tmp_path_factory.mktemp("worker-valkey")) as server:
        yield server.url
