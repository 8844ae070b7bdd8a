"""A store with a password, and the file that holds it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis import Redis

from tree_store.embedded import EmbeddedServer

PASSWORD = "hunter2-is-the-password"


@dataclass(frozen=True, slots=True)
class Store:
    """A Valkey that asks for a password."""

    url: str
    password_file: Path

    @property
    def environment(self) -> dict[str, str]:
        """How a program is told of it."""
        return {
            "THOUGHTBEAM_REDIS_URL": self.url,
            "THOUGHTBEAM_REDIS_PASSWORD_FILE": str(self.password_file),
        }


@pytest.fixture(scope="package")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("store")
    password_file = folder / "password"
    password_file.write_text(PASSWORD + "\n")
    with EmbeddedServer(folder / "valkey") as server, Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", PASSWORD)
        try:
            yield Store(server.url, password_file)
        finally:
            # whoever stops the server has no password
            admin.config_set("requirepass", "")
