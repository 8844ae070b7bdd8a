from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from decoder_worker.answers.equivalence import Equivalence


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def patient() -> AsyncIterator[Equivalence]:
    """For comparisons that are to succeed, on a busy machine as well."""
    async with Equivalence(seconds=30.0) as shared:
        yield shared


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def equivalence() -> AsyncIterator[Equivalence]:
    """As it is in the service."""
    async with Equivalence() as shared:
        yield shared
