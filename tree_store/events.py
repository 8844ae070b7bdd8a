"""The event feed of a tree: every transition, in order, readable from any event on."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from tree_store.connection import BLOCK_LIMIT, Connection, texts
from tree_store.errors import TreeNotFoundError, translated
from tree_store.keys import TreeKeys

EventKind = Literal["tree", "node", "round", "progress"]
_EVENT_ID = re.compile(r"\d{1,20}(-\d{1,20})?")


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of the feed.

    event_id: its place in the order; unique in the tree. time: seconds since the epoch, by Redis' clock.
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


class EventFeed(Connection):
    """Reads feeds."""

    async def events(
        self, tree_id: str, after: str = "", *, block: float = 0.0, count: int = 500
    ) -> list[Event]:
        """Up to `count` events later than the event `after` ("": from the first on), oldest first.

        Waits up to `block` seconds for the first one; [] when there is none by then. Raises ValueError
        for an id that is none, TreeNotFoundError.
        """
        if after and not _EVENT_ID.fullmatch(after):
            raise ValueError(f"event id {after!r}: must be <milliseconds>-<number>")
        key = TreeKeys(tree_id).events
        until = time.monotonic() + block
        with translated():
            while True:
                left = until - time.monotonic()
                client = self._blocking if left > 0 else self._redis
                # block=0 would wait for ever
                wait = max(1, int(min(left, BLOCK_LIMIT) * 1000)) if left > 0 else None
                found = await client.xread({key: after or "0"}, count=count, block=wait)
                if found:
                    return [_event(event_id, fields) for event_id, fields in found[0][1]]
                if not await self._redis.exists(key):
                    raise TreeNotFoundError(f"no tree {tree_id}")
                if left <= 0:
                    return []


def _event(event_id: bytes, entry: Mapping[bytes, bytes]) -> Event:
    fields = texts(entry)
    kind = cast(EventKind, fields.pop("type"))
    name = event_id.decode()
    return Event(name, int(name.partition("-")[0]) / 1000, kind, fields)
