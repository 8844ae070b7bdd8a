"""Which workers there are: each says so itself, again and again, and is forgotten when it stops."""

from __future__ import annotations

from collections.abc import Mapping

from tree_store.connection import Connection, text, texts
from tree_store.errors import translated
from tree_store.keys import WORKERS, worker_key


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

    async def workers(self) -> dict[str, dict[str, str]]:
        """What the workers that are there say of themselves, by name."""
        with translated():
            names = [text(name) for name in await self._redis.zrange(WORKERS, 0, -1)]
            async with self._redis.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hgetall(worker_key(name))
                found = await pipeline.execute()
        return {name: texts(fields) for name, fields in zip(names, found, strict=True) if fields}

    async def _forget_workers(self) -> None:
        """Takes workers off the list that have not been heard of for their whole TTL."""
        with translated():
            for name in await self._redis.zrange(WORKERS, 0, -1):
                if not await self._redis.exists(worker_key(text(name))):
                    await self._redis.zrem(WORKERS, name)
