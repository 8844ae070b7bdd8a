"""The event feed of a tree: every transition, in order, readable from any event on that it still holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from tree_store.connection import BLOCK_LIMIT, Connection, texts
from tree_store.errors import EventsTrimmedError, TreeNotFoundError, translated
from tree_store.keys import TreeKeys

EventKind = Literal["tree", "node", "round", "progress"]
# both parts fit into the 64 bits that Redis has for them
_EVENT_ID = re.compile(r"(0|[1-9]\d{0,18})-([1-9]\d{0,18})")


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the feed.

    event_id: its place in the order, `<milliseconds>-<number>`; the numbers of a tree's events count from 1
    without a gap. time: seconds since the epoch, by Redis' clock.
    fields, by kind:
    tree: `to`, `from` (not for the creation), `reason`; for an assignment `worker` and `epoch`.
    node: `node`, `to`, `from` (not for the creation), `parent` (creation of a branch), `reason`.
    round: the fields of RoundRecord, node lists joined by commas.
    progress: the counters and token usage of TreeRecord.
    """

    event_id: str
    time: float
    kind: EventKind
    fields: Mapping[str, str]

    @property
    def number(self) -> int:
        return number_of(self.event_id)


def is_event_id(text: str) -> bool:
    """Whether a text could be the id of an event."""
    return _EVENT_ID.fullmatch(text) is not None


def number_of(event_id: str) -> int:
    """The number of an event; of "", the place before the first one, 0."""
    return _place(event_id)[1]


def _place(event_id: str) -> tuple[int, int]:
    time, _, number = event_id.partition("-")
    return int(time or 0), int(number or 0)


class EventFeed(Connection):
    """Reads feeds."""

    async def events(
        self, tree_id: str, after: str = "", *, count: int = 500, skip: bool = False
    ) -> list[Event]:
        """Up to `count` events later than the event `after` ("": from the first on), oldest first.

        Without a gap; `skip`: what the feed has trimmed is left out.

        Raises ValueError for an id that is none, EventsTrimmedError, TreeNotFoundError.
        """
        if after and not is_event_id(after):
            raise ValueError(f"event id {after!r}: must be <milliseconds>-<number>")
        key = TreeKeys(tree_id).events
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.xread({key: after or "0"}, count=count)
                pipeline.xrevrange(key, count=1)
                found, newest = await pipeline.execute()
        if not newest:
            raise TreeNotFoundError(f"no tree {tree_id}")
        events = _events(found[0][1] if found else [])
        # what was read tells by itself whether something is missing, whatever is trimmed meanwhile
        if events:
            gap = events[0].number != number_of(after) + 1
        else:
            gap = _place(_event(*newest[0]).event_id) < _place(after)
        if gap and not skip:
            raise EventsTrimmedError(f"tree {tree_id}: its feed does not go on from event {after or 0}")
        return events

    async def last_event(self, tree_id: str) -> Event:
        """Raises TreeNotFoundError."""
        with translated():
            newest = await self._redis.xrevrange(TreeKeys(tree_id).events, count=1)
        if not newest:
            raise TreeNotFoundError(f"no tree {tree_id}")
        return _events(newest)[0]

    async def new_events(
        self, places: Mapping[str, str], *, block: float, count: int
    ) -> dict[str, list[Event]]:
        """Of many feeds at once, by tree id: up to `count` events later than the event at which each is.

        Waits up to `block` seconds, at most 10, for the first of any of them. Feeds without later events, or
        which are no longer there, are left out; whether there is a gap is the caller's to check.
        """
        trees = {TreeKeys(tree_id).events.encode(): tree_id for tree_id in places}
        wait = max(1, int(min(block, BLOCK_LIMIT) * 1000))  # 0 would be for ever
        with translated():
            found = await self._blocking.xread(
                {key: places[tree_id] for key, tree_id in trees.items()}, count=count, block=wait
            )
        return {trees[key]: _events(entries) for key, entries in found}

    async def without_feed(self, tree_ids: Sequence[str]) -> list[str]:
        """Those of the trees that are no longer there."""
        keys = [TreeKeys(tree_id).events for tree_id in tree_ids]
        with translated():
            if not keys or await self._redis.exists(*keys) == len(keys):
                return []
            async with self._redis.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.exists(key)
                known = await pipeline.execute()
        return [tree_id for tree_id, there in zip(tree_ids, known, strict=True) if not there]


def _events(entries: Iterable[tuple[bytes, Mapping[bytes, bytes]]]) -> list[Event]:
    return [_event(event_id, fields) for event_id, fields in entries]


def _event(event_id: bytes, entry: Mapping[bytes, bytes]) -> Event:
    fields = texts(entry)
    kind = cast(EventKind, fields.pop("type"))
    name = event_id.decode()
    return Event(name, int(name.partition("-")[0]) / 1000, kind, fields)
