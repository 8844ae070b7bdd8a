"""The services of compose.yaml run on Redis: in CI it must be there; elsewhere the embedded Valkey does."""

import os
import shutil

import pytest

from tests.compose.processes import STORE_COMMANDS
from tree_store.embedded import EmbeddedServerError, server_binary


@pytest.fixture(scope="session", autouse=True)
def _store() -> None:
    if all(shutil.which(name) for name in STORE_COMMANDS):
        return
    if os.environ.get("CI"):
        pytest.fail(f"{' and '.join(STORE_COMMANDS)} are missing; Debian's redis-server package has both")
    try:
        server_binary()
    except EmbeddedServerError as error:
        pytest.skip(f"no Redis is installed, and {error}")
