"""Redis, which the services of compose.yaml run on: in CI it must be there."""

import os
import shutil

import pytest

from tests.compose.processes import STORE_COMMANDS


@pytest.fixture(scope="session", autouse=True)
def _redis() -> None:
    missing = [name for name in STORE_COMMANDS if shutil.which(name) is None]
    if missing:
        no_redis = pytest.fail if os.environ.get("CI") else pytest.skip
        no_redis(f"{', '.join(missing)} not installed here; Debian's redis-server package has it")
