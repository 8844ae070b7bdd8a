"""The sweep: what nobody else will do. Any number of processes may run it, at any time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from tree_store.connection import text
from tree_store.errors import TreeNotFoundError, translated
from tree_store.keys import TREES, TreeKeys
from tree_store.model import TreeState
from tree_store.presence import Presence
from tree_store.writes import LATE_VOTE, TreeWrites

# Seconds.
_STRAY_AFTER = 300.0  # a tree that is on the list for so long and was not created never will be
# A tree is looked at for so long after it was first seen to have ended: a Redis that comes back without its
# last second may have it running again.
_SETTLED_AFTER = 60.0
_CLOCK_SLACK = 1.0  # by which the server's clock may be set back between two registrations
_WHOLE_LIST_EVERY = 3600.0  # to find what has left Redis; the sweeps in between read what is new
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
    """Looks at the trees that have not ended: a sweep costs what is open or new, not what is kept."""

    def __init__(self, url: str, password: str | None = None) -> None:
        super().__init__(url, password)
        self._watched: dict[str, float] = {}  # time of listing, by tree id
        self._seen_ended: dict[str, float] = {}  # when that was seen first, of watched trees
        self._listed_until = 0.0  # everything listed before that has been taken up
        self._whole_list_at = 0.0

    async def sweep(self) -> Swept:
        """Requeues trees whose lease has run out, ends those whose deadline passed in the queue, puts back
        what the queue has lost, and trims `tb:trees`, `tb:queue` and `tb:workers`."""
        now = await self._now()
        await self._watch_new(now)
        done: dict[str, list[str]] = {name: [] for name in ("requeued", "expired", "given_up", "cancelled")}
        queued: dict[str, str] = {}
        strays: list[str] = []
        async for tree_id, fields in self._read(list(self._watched)):
            if not fields["state"]:
                if self._watched[tree_id] < now - _STRAY_AFTER:
                    strays.append(tree_id)
                continue
            if TreeState(fields["state"]).terminal:
                self._forget_ended(tree_id, now)
                continue
            self._seen_ended.pop(tree_id, None)
            verdict = await self._overdue(tree_id, fields, now)
            if verdict:
                done[verdict].append(tree_id)
            elif fields["state"] == TreeState.QUEUED:
                queued[tree_id] = fields["queue_entry"]
        enqueued = await self._put_back(queued)
        await self._drop_strays(strays)
        await self._forget_workers()
        return Swept(
            requeued=tuple(done["requeued"]),
            expired=tuple(done["expired"]),
            given_up=tuple(done["given_up"]),
            cancelled=tuple(done["cancelled"]),
            enqueued=tuple(enqueued),
            strays=tuple(strays),
        )

    async def _watch_new(self, now: float) -> None:
        """Takes up what was listed since the last time, now and then everything."""
        since = self._listed_until - _CLOCK_SLACK
        if now >= self._whole_list_at:
            since = 0.0
        with translated():
            listed = await self._redis.zrange(TREES, since, "+inf", byscore=True, withscores=True)
        self._watched.update((text(tree_id), time) for tree_id, time in listed)
        self._listed_until = now
        if not since:
            self._whole_list_at = now + _WHOLE_LIST_EVERY

    def _forget_ended(self, tree_id: str, now: float) -> None:
        if now - self._seen_ended.setdefault(tree_id, now) >= _SETTLED_AFTER:
            del self._watched[tree_id], self._seen_ended[tree_id]

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
        """Adds entries for queued trees that have none, and drops those whose trees do not wait: they ended
        just when the entry was made.

        The queue is read after the trees: what was taken from it in between is not queued any more.
        """
        entries = await self._entries()
        strange = {entry: tree_id for entry, tree_id in entries.items() if queued.get(tree_id) != entry}
        states = {tree_id: fields["state"] async for tree_id, fields in self._read([*strange.values()])}
        for entry, tree_id in strange.items():
            if states[tree_id] != TreeState.QUEUED:
                await self.drop(entry)
        return [
            tree_id
            for tree_id, entry in queued.items()
            if entry not in entries and await self._enqueue(tree_id, replaces=entry)
        ]

    async def _read(self, tree_ids: Sequence[str]) -> AsyncIterator[tuple[str, dict[str, str]]]:
        """(tree id, state and what makes it overdue) of these trees; the state of one that is none is ""."""
        names = ("state", "epoch", "lease", "deadline", "cancel_requested", "queue_entry")
        for first in range(0, len(tree_ids), _TREES_PER_READ):
            chunk = tree_ids[first : first + _TREES_PER_READ]
            with translated():
                async with self._redis.pipeline(transaction=False) as pipeline:
                    for tree_id in chunk:
                        pipeline.hmget(TreeKeys(tree_id).meta, names)
                    found = await pipeline.execute()
            for tree_id, values in zip(chunk, found, strict=True):
                yield tree_id, dict(zip(names, map(text, values), strict=True))

    async def _drop_strays(self, strays: Sequence[str]) -> None:
        """Takes ids without a tree off the list."""
        if strays:
            with translated():
                await self._redis.zrem(TREES, *strays)
        for tree_id in strays:
            del self._watched[tree_id]
            self._seen_ended.pop(tree_id, None)
