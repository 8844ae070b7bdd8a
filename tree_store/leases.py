"""The sweep: what nobody else will do. Any number of processes may run it, at any time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tree_store.connection import text
from tree_store.errors import TreeNotFoundError, translated
from tree_store.keys import TREES, TreeKeys
from tree_store.model import TreeState
from tree_store.presence import Presence
from tree_store.writes import LATE_VOTE, TreeWrites

# Seconds.
_STRAY_AFTER = 300.0  # a tree that is on the list for so long and was not created never will be
_TREES_PER_READ = 500


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did, by tree id.

    requeued: their lease had run out. expired: their deadline passed before they ran. given_up: they had run,
    and nobody took them again. cancelled: that was asked for before they came back to the queue. enqueued:
    queued, but the queue had lost them. strays: on the list of trees without being one.
    """

    requeued: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    cancelled: tuple[str, ...] = ()
    enqueued: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()


class Sweep(TreeWrites, Presence):
    """Looks at all trees that have not ended."""

    # Everything on the list before this time has ended; found by the last sweep of this process.
    _open_since = 0.0

    async def sweep(self) -> Swept:
        """Requeues trees whose lease has run out, ends those whose deadline passed in the queue, puts back
        what the queue has lost, and trims `tb:trees`, `tb:queue` and `tb:workers`."""
        now = await self._now()
        done: dict[str, list[str]] = {name: [] for name in ("requeued", "expired", "given_up", "cancelled")}
        queued: dict[str, str] = {}
        oldest_open = now
        async for tree_id, listed, fields in self._listed(self._open_since - _STRAY_AFTER):
            state = fields["state"]
            ended = TreeState(state).terminal if state else listed < now - _STRAY_AFTER
            if ended:
                continue
            oldest_open = min(oldest_open, listed)
            if state == TreeState.QUEUED:
                queued[tree_id] = fields["queue_entry"]
            verdict = await self._overdue(tree_id, fields, now)
            if verdict:
                done[verdict].append(tree_id)
                queued.pop(tree_id, None)
        enqueued = await self._put_back(queued)
        self._open_since = oldest_open
        strays = await self._drop_strays(now - _STRAY_AFTER)
        await self._forget_workers()
        return Swept(
            requeued=tuple(done["requeued"]),
            expired=tuple(done["expired"]),
            given_up=tuple(done["given_up"]),
            cancelled=tuple(done["cancelled"]),
            enqueued=tuple(enqueued),
            strays=tuple(strays),
        )

    async def _overdue(self, tree_id: str, fields: Mapping[str, str], now: float) -> str:
        """Does what is due for one open tree; the scripts check again. Returns the name of it, or ""."""
        try:
            match fields["state"]:
                case TreeState.RUNNING if float(fields["lease"]) <= now:
                    return "requeued" if await self.requeue_expired(tree_id) else ""
                case TreeState.QUEUED if fields["cancel_requested"] == "1":
                    await self.request_cancel(tree_id)
                    return "cancelled"
                case TreeState.QUEUED if fields["epoch"] == "0" and float(fields["deadline"]) <= now:
                    return "expired" if await self.expire(tree_id) else ""
                case TreeState.QUEUED if float(fields["deadline"]) + LATE_VOTE <= now:
                    return "given_up" if await self.give_up(tree_id) else ""
        except TreeNotFoundError:
            pass  # it expired just now
        return ""

    async def _put_back(self, queued: Mapping[str, str]) -> list[str]:
        """Adds entries for queued trees that have none.

        The queue is read after the trees: what was taken from it in between is not queued any more.
        """
        entries = await self._entries()
        return [
            tree_id
            for tree_id, entry in queued.items()
            if entry not in entries and await self._enqueue(tree_id, replaces=entry)
        ]

    async def _listed(self, since: float) -> AsyncIterator[tuple[str, float, dict[str, str]]]:
        """(tree id, time of listing, state and what makes it overdue) of trees listed since then."""
        names = ("state", "epoch", "lease", "deadline", "cancel_requested", "queue_entry")
        with translated():
            listed = await self._redis.zrange(TREES, since, "+inf", byscore=True, withscores=True)
        for first in range(0, len(listed), _TREES_PER_READ):
            chunk = [(text(tree_id), score) for tree_id, score in listed[first : first + _TREES_PER_READ]]
            with translated():
                async with self._redis.pipeline(transaction=False) as pipeline:
                    for tree_id, _ in chunk:
                        pipeline.hmget(TreeKeys(tree_id).meta, names)
                    found = await pipeline.execute()
            for (tree_id, score), values in zip(chunk, found, strict=True):
                yield tree_id, score, dict(zip(names, map(text, values), strict=True))

    async def _drop_strays(self, until: float) -> list[str]:
        """Takes ids off the list that are older than that and have no tree, looking at the oldest first."""
        with translated():
            ids = await self._redis.zrange(TREES, "-inf", until, byscore=True, offset=0, num=_TREES_PER_READ)
            async with self._redis.pipeline(transaction=False) as pipeline:
                for tree_id in ids:
                    pipeline.exists(TreeKeys(text(tree_id)).meta)
                exist = await pipeline.execute()
            strays = [text(tree_id) for tree_id, known in zip(ids, exist, strict=True) if not known]
            if strays:
                await self._redis.zrem(TREES, *strays)
        return strays
