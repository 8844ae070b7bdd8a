"""The queue of trees that wait for a worker: a stream that every gateway reads from the front.

An entry keeps its place until its tree has left the queue, whoever looks at it meanwhile, so that order is
kept and nothing is lost with a gateway. Two gateways may go for one tree: the second assignment is refused.
A tree may also come twice; an entry whose tree does not wait any more is to be dropped.
"""

from __future__ import annotations

from tree_store.connection import BLOCK_LIMIT, Connection, text
from tree_store.errors import translated
from tree_store.keys import QUEUE, TreeKeys

_ENTRIES_PER_READ = 1000


class DispatchQueue(Connection):
    """Puts trees into the queue and takes them out."""

    async def enqueue(self, tree_id: str) -> None:
        """Copies a queued tree to the queue, once. Does nothing for a tree that is not queued (any more)."""
        await self._enqueue(tree_id)

    async def queue(
        self, after: str = "", *, block: float = 0.0, count: int = _ENTRIES_PER_READ
    ) -> list[tuple[str, str]]:
        """Up to `count` (entry, tree id) behind the entry `after` ("": from the front on), oldest first.

        Waits up to `block` seconds, at most 10, for the first one; [] when there is none by then.
        """
        wait = int(min(block, BLOCK_LIMIT) * 1000) or None  # 0 would be for ever
        client = self._blocking if wait else self._redis
        with translated():
            found = await client.xread({QUEUE: after or "0"}, count=count, block=wait)
        entries = found[0][1] if found else []
        return [(text(entry), text(fields[b"tree"])) for entry, fields in entries]

    async def drop(self, entry: str) -> None:
        """Takes an entry out of the queue."""
        with translated():
            await self._redis.xdel(QUEUE, entry)

    async def oldest_wait(self) -> float | None:
        """Seconds that the first entry has stood in the queue; None: the queue is empty."""
        first = await self.queue(count=1)
        if not first:
            return None
        return max(0.0, await self._now() - int(first[0][0].partition("-")[0]) / 1000)

    async def queue_length(self) -> int:
        """Entries in the queue."""
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

    async def _entries(self) -> set[str]:
        """Ids of all entries."""
        entries: set[str] = set()
        last = ""
        while page := await self.queue(last):
            entries.update(entry for entry, _ in page)
            last = page[-1][0]
        return entries
