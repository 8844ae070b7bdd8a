"""Looks, every second or so, for what nobody else will notice: see `sweep` in tree_store/leases.py."""

from __future__ import annotations

import asyncio
from dataclasses import fields

from thoughtbeam.runtime.log import EventLogger
from tree_store.errors import StoreError
from tree_store.store import TreeStore

log = EventLogger("gateway.reaper")


async def reap(store: TreeStore, interval: float) -> None:
    """Sweeps every `interval` seconds until cancelled. Any number of gateways may do so at the same time."""
    while True:
        try:
            swept = await store.sweep()
        except StoreError as error:
            log.warning("sweep_failed", error=error)
        else:
            for kind in fields(swept):
                for tree_id in getattr(swept, kind.name):
                    log.info(f"tree_{kind.name}", tree_id=tree_id)
        await asyncio.sleep(interval)
