"""The same calls through the synchronous and the asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from thoughtbeam import AsyncClient, Client, Result, RetryConfig

FAST = RetryConfig(initial=0.01, maximum=0.05, first_contact=0.5, outage=10.0)


class Calls:
    """The same calls through either client, so that every test holds for both."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def stream(self, endpoint: str, *args: Any, **options: Any) -> list[Any]:
        if self.kind == "sync":
            return await asyncio.to_thread(self._stream, endpoint, *args, **options)
        async with AsyncClient(endpoint, retry=FAST) as client:
            return [item async for item in client.stream(*args, **options)]

    def _stream(self, endpoint: str, *args: Any, **options: Any) -> list[Any]:
        with Client(endpoint, retry=FAST) as client:
            return list(client.stream(*args, **options))

    async def call(self, endpoint: str, method: str, *args: Any, **options: Any) -> Any:
        if self.kind == "sync":
            return await asyncio.to_thread(self._call, endpoint, method, *args, **options)
        async with AsyncClient(endpoint, retry=FAST, call_timeout=60.0) as client:
            answer = getattr(client, method)(*args, **options)
            return [item async for item in answer] if isinstance(answer, AsyncIterator) else await answer

    def _call(self, endpoint: str, method: str, *args: Any, **options: Any) -> Any:
        with Client(endpoint, retry=FAST, call_timeout=60.0) as client:
            answer = getattr(client, method)(*args, **options)
            return list(answer) if isinstance(answer, Iterator) else answer


def event_ids(items: list[Any]) -> list[str]:
    return [item.event_id for item in items if not isinstance(item, Result)]
