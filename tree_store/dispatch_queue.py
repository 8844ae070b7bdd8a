"""The queue of trees that wait for a worker: a stream with one consumer group, the gateways.

An entry that is not acknowledged within a minute goes back to the end of the queue, so read only as many as
can be assigned at once. A tree may come twice: the second assignment is refused, acknowledge it all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from redis.exceptions import ResponseError

from tree_store.connection import BLOCK_LIMIT, Connection, text
from tree_store.errors import translated
from tree_store.keys import QUEUE, QUEUE_GROUP, TreeKeys

UNACKED_AFTER = 60.0  # seconds
_SWEEPER = "sweep"  # consumer name under which unacknowledged entries are taken over


class DispatchQueue(Connection):
    """Puts trees into the queue and takes them out."""

    async def enqueue(self, tree_id: str) -> None:
        """Copies a queued tree to the queue, once. Does nothing for a tree that is not queued (any more)."""
        await self._enqueue(tree_id)

    async def read_queue(self, consumer: str, block: float, count: int = 1) -> list[tuple[str, str]]:
        """Up to `count` (entry, tree id), oldest first. consumer: unique per process.

        Waits up to `block` seconds, at most 10, for the first one; [] when there is none by then.
        """
        wait = int(min(block, BLOCK_LIMIT) * 1000) or None  # 0 would be for ever
        client = self._blocking if wait else self._redis
        found = await self._with_group(
            lambda: client.xreadgroup(QUEUE_GROUP, consumer, {QUEUE: ">"}, count=count, block=wait)
        )
        entries = found[0][1] if found else []
        return [(text(entry), text(fields[b"tree"])) for entry, fields in entries]

    async def ack(self, entry: str) -> None:
        """Takes an entry out of the queue for good."""
        await self._run("ack", [QUEUE], [QUEUE_GROUP, entry])

    async def queue_length(self) -> int:
        """Entries not acknowledged yet."""
        with translated():
            return int(await self._redis.xlen(QUEUE))

    async def _enqueue(self, tree_id: str, replaces: str = "") -> bool:
        """Adds an entry for a queued tree that has none, or none but `replaces`. Whether one was added.

        The entry comes first and is noted in the tree second: a crash in between leaves a tree that is
        dispatched twice, not one that is lost.
        """
        keys = TreeKeys(tree_id)
        with translated():
            state, standing = await self._redis.hmget(keys.meta, "state", "queue_entry")
            if state != b"queued" or text(standing) not in ("", replaces):
                return False
        entry = text(await self._run("push", [QUEUE], [tree_id]))
        await self._run("enqueued", keys.of_tree(), [entry, text(standing)])
        return True

    async def _requeue_unacked(self) -> list[str]:
        """Gives up on consumers that took entries and never acknowledged them. Returns the trees put back."""
        put_back = []
        async for entry, tree_id in self._unacked():
            if await self._enqueue(tree_id, replaces=entry):
                put_back.append(tree_id)
            await self.ack(entry)
        return put_back

    async def _unacked(self) -> AsyncIterator[tuple[str, str]]:
        cursor = "0-0"
        idle = int(UNACKED_AFTER * 1000)
        while True:
            claim = partial(self._redis.xautoclaim, QUEUE, QUEUE_GROUP, _SWEEPER, idle, cursor, count=100)
            answer = await self._with_group(claim)
            for entry, fields in answer[1]:
                yield text(entry), text(fields[b"tree"])
            cursor = text(answer[0])
            if cursor == "0-0":
                return

    async def _entries(self) -> set[str]:
        """Ids of all entries."""
        entries: set[str] = set()
        start = "-"
        while True:
            with translated():
                found = await self._redis.xrange(QUEUE, start, "+", count=1000)
            if not found:
                return entries
            entries.update(text(entry) for entry, _ in found)
            start = f"({text(found[-1][0])}"

    async def _forget_consumers(self, idle: float) -> None:
        """Drops consumers that hold nothing and have not read for `idle` seconds."""
        consumers = await self._with_group(lambda: self._redis.xinfo_consumers(QUEUE, QUEUE_GROUP))
        with translated():
            for consumer in consumers:
                if consumer["pending"] == 0 and consumer["idle"] > idle * 1000:
                    await self._redis.xgroup_delconsumer(QUEUE, QUEUE_GROUP, consumer["name"])

    async def _with_group(self, command: Callable[[], Awaitable[Any]]) -> Any:
        """Makes the queue and its group when they are new, or were lost."""
        with translated():
            try:
                return await command()
            except ResponseError as error:
                if not str(error).startswith(("NOGROUP", "UNBLOCKED", "no such key")):
                    raise
            await self._run("make_queue", [QUEUE], [QUEUE_GROUP])
            return await command()
