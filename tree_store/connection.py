"""The connection to Redis or Valkey that all parts of the tree store share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import EqualJitterBackoff
from redis.commands.core import AsyncScript

from tree_store import scripts
from tree_store.errors import translated

# Seconds. A command is tried 1 + RETRIES times; between the tries the pauses grow to PAUSE_CAP, so that a
# restarting Redis is waited for three to five seconds.
COMMAND_TIMEOUT = 5.0
RETRIES, PAUSE_BASE, PAUSE_CAP = 8, 0.05, 1.0
# Longest single blocking read; callers that want to wait for longer loop over it.
BLOCK_LIMIT = 10.0


class Connection:
    """Two pools of connections: one for commands, one for reads that block."""

    def __init__(self, url: str, password: str | None = None) -> None:
        # Any: redis-py types a reply as the union over all protocols; with ours it is bytes, lists and dicts.
        self._redis: Any = _client(url, password, COMMAND_TIMEOUT, max_connections=200)
        # Its own pool, so that a read which waits cannot keep a commit waiting.
        self._blocking: Any = _client(url, password, BLOCK_LIMIT + COMMAND_TIMEOUT, max_connections=100)
        self._scripts: dict[str, AsyncScript] = {
            name: self._redis.register_script(scripts.source(name)) for name in scripts.names()
        }

    @classmethod
    def connect(cls, url: str, password: str | None = None) -> Self:
        """A store on `redis://…`, `rediss://…` or `unix://…`. Connects when first used.

        password: for a URL that has none.
        """
        return cls(url, password)

    async def close(self) -> None:
        """Closes all connections."""
        await self._redis.aclose()
        await self._blocking.aclose()

    async def ping(self) -> None:
        """Raises StoreUnavailableError when Redis does not answer."""
        with translated():
            await self._redis.ping()

    async def _run(self, script: str, keys: Iterable[str], args: Iterable[str | int | float | bytes]) -> Any:
        with translated():
            return await self._scripts[script](list(keys), list(args))

    async def _now(self) -> float:
        """Redis' own clock, in seconds since the epoch."""
        with translated():
            seconds, microseconds = await self._redis.time()
        return float(seconds) + float(microseconds) / 1e6


def _client(url: str, password: str | None, timeout: float, max_connections: int) -> Redis:
    # redis-py's other pool refuses a command that finds no connection free; this one makes it wait its turn
    pool = BlockingConnectionPool.from_url(
        url,
        password=password,
        timeout=COMMAND_TIMEOUT,
        protocol=2,
        socket_timeout=timeout,
        socket_connect_timeout=COMMAND_TIMEOUT,
        max_connections=max_connections,
        retry=Retry(EqualJitterBackoff(PAUSE_CAP, PAUSE_BASE), RETRIES),
    )
    return Redis.from_pool(pool)


def text(value: bytes | None) -> str:
    """A stored string; absent is empty."""
    return "" if value is None else value.decode()


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """A stored hash."""
    return {name.decode(): value.decode() for name, value in fields.items()}
