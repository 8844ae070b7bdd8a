"""Waits for a tree store that is away: a Redis that restarts ends no search."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from thoughtbeam.runtime.log import EventLogger
from tree_store.errors import StoreUnavailableError

RETRY_SECONDS = 0.5

T = TypeVar("T")

log = EventLogger("decoder_worker.patience")


async def until_available(call: Callable[[], Awaitable[T]], *, tree_id: str) -> T:
    """Makes a call to the tree store that may be repeated, again until the store answers."""
    while True:
        try:
            return await call()
        except StoreUnavailableError as error:
            log.warning("tree_store_unavailable", tree_id=tree_id, error=error)
            await asyncio.sleep(RETRY_SECONDS)
