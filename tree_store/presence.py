"""Which workers there are: each says so itself, again and again, until it leaves or falls silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tree_store.connection import Connection, text, texts
from tree_store.errors import translated
from tree_store.keys import WORKERS, worker_key


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A decoder worker as it last described itself.

    last_seen: seconds since the epoch, by Redis' clock. draining: it takes no new trees. kv_use: share of its
    KV blocks in use. max_context: tokens; max_capacity: logical capacity. scorer: its kind; "" for none.
    """

    worker: str
    last_seen: float
    draining: bool
    model: str
    slots: int
    free_slots: int
    waiting_traces: int
    trees: int
    kv_use: float
    max_context: int
    max_capacity: int
    scorer: str


class Presence(Connection):
    """Announces workers and lists them."""

    async def announce_worker(self, worker: str, fields: Mapping[str, str], ttl: float) -> None:
        """Says that a worker is there for `ttl` seconds. fields, at least one, replace earlier ones."""
        key = worker_key(worker)
        now = await self._now()
        with translated():
            async with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.delete(key)
                pipeline.hset(key, mapping=dict(fields))
                pipeline.pexpire(key, int(ttl * 1000))
                await pipeline.execute()
            await self._redis.zadd(WORKERS, {worker: now})

    async def withdraw_worker(self, worker: str) -> None:
        """Says that a worker is no longer there. Repeated it changes nothing."""
        with translated():
            await self._redis.zrem(WORKERS, worker)
            await self._redis.delete(worker_key(worker))

    async def workers(self) -> list[WorkerRecord]:
        """The workers that were heard of within their TTL, by name."""
        with translated():
            listed = sorted(await self._redis.zrange(WORKERS, 0, -1, withscores=True))
            async with self._redis.pipeline(transaction=False) as pipeline:
                for name, _ in listed:
                    pipeline.hgetall(worker_key(text(name)))
                found = await pipeline.execute()
        return [
            _record(text(name), last_seen, texts(fields))
            for (name, last_seen), fields in zip(listed, found, strict=True)
            if fields
        ]

    async def _forget_workers(self) -> None:
        """Takes workers off the list that have not been heard of for their whole TTL."""
        with translated():
            for name in await self._redis.zrange(WORKERS, 0, -1):
                if not await self._redis.exists(worker_key(text(name))):
                    await self._redis.zrem(WORKERS, name)


def _record(worker: str, last_seen: float, fields: Mapping[str, str]) -> WorkerRecord:
    """What an older or newer release does not say of itself is 0 or ""."""

    def count(name: str) -> int:
        return int(fields.get(name, 0))

    return WorkerRecord(
        worker=worker,
        last_seen=last_seen,
        draining=fields.get("state") == "draining",
        model=fields.get("model", ""),
        slots=count("slots"),
        free_slots=count("free_slots"),
        waiting_traces=count("waiting_traces"),
        trees=count("trees"),
        kv_use=float(fields.get("kv_use", 0)),
        max_context=count("max_context"),
        max_capacity=count("max_capacity"),
        scorer=fields.get("scorer", ""),
    )
