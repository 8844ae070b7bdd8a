"""Follows the event feeds of many trees: any number of watchers, one connection to the tree store."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from thoughtbeam.runtime.log import EventLogger
from tree_store.errors import StoreError, TreeNotFoundError
from tree_store.events import Event, number_of
from tree_store.model import TreeState
from tree_store.store import TreeStore

log = EventLogger("gateway.feed")

# Seconds. A read is of the feeds that there are when it begins; one that joins meanwhile waits for the next.
# With many feeds both reads and the pauses between them are longer, so that they cost the same.
_WAIT, _WAIT_PER_FEED = 0.02, 50e-6
_PAUSE, _PAUSE_PER_FEED = 0.002, 10e-6
_LOOK_INTERVAL = 1.0  # between two looks for feeds that are gone
_STORE_PAUSE = 0.5
# Events of a feed that are at hand for its watchers, and taken by one read. One that is further behind reads
# the store itself; so many do at a time.
_KEPT = 64
_CATCHING_UP = 16


class Feeds:
    """The feeds that are being watched, of one gateway. `run` has to run."""

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._tails: dict[str, _Tail] = {}
        self._joined = asyncio.Event()  # there may be feeds to read
        self._catching_up = asyncio.Semaphore(_CATCHING_UP)
        self.closed = False

    async def run(self) -> None:
        """Reads what is new until cancelled. A store that is away ends what is being followed."""
        look_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            await self._joined.wait()
            try:
                await self._read()
                if loop.time() >= look_at:
                    await self._look_for_gone()
                    look_at = loop.time() + _LOOK_INTERVAL
            except StoreError as error:
                log.warning("store_failed", error=error)
                self._end(list(self._tails), error)
                await asyncio.sleep(_STORE_PAUSE)

    def close(self) -> None:
        """Ends what is being followed, and whatever is from now on, where it is."""
        self.closed = True
        for tail in self._tails.values():
            tail.wake()

    async def follow(
        self, tree_id: str, after: str = "", *, skip: bool = False
    ) -> AsyncGenerator[Event, None]:
        """The events of a tree later than the event `after`, in order, until it has ended or `close`.

        Without a gap; `skip`: what the feed has trimmed is left out. A watcher that is so slow that it is
        overtaken by the trimming is told so like any other. Raises what the store's `events` raises.
        """
        async with self._catching_up:
            last = await self._store.last_event(tree_id)
        with self._watching(tree_id, last) as tail:
            while not self.closed:
                tail.check()
                news = tail.news
                events = tail.later_than(after)
                if events is None:
                    async with self._catching_up:
                        events = await self._store.events(tree_id, after, skip=skip)
                for event in events:
                    yield event
                    after = event.event_id
                if ends(events[-1] if events else tail.last):
                    return
                if not events:
                    await news.wait()

    @contextmanager
    def _watching(self, tree_id: str, last: Event) -> Iterator[_Tail]:
        """The tail of a feed, for as long as somebody watches it. last: the feed's last event just now."""
        tail = self._tails.setdefault(tree_id, _Tail(last))
        tail.watchers += 1
        self._joined.set()
        try:
            yield tail
        finally:
            tail.watchers -= 1
            if not tail.watchers and self._tails.get(tree_id) is tail:
                del self._tails[tree_id]

    async def _read(self) -> None:
        """One read of all feeds that go on, from where each one's tail ends."""
        tails = {tree_id: tail for tree_id, tail in self._tails.items() if not ends(tail.last)}
        if not tails:
            self._joined.clear()
            return
        found = await self._store.new_events(
            {tree_id: tail.last.event_id for tree_id, tail in tails.items()},
            block=_WAIT + _WAIT_PER_FEED * len(tails),
            count=_KEPT,
        )
        for tree_id, events in found.items():
            tails[tree_id].add(events)
        if found:
            await asyncio.sleep(_PAUSE + _PAUSE_PER_FEED * len(tails))

    async def _look_for_gone(self) -> None:
        for tree_id in await self._store.without_feed(list(self._tails)):
            self._end([tree_id], TreeNotFoundError(f"no tree {tree_id}"))

    def _end(self, tree_ids: Sequence[str], error: StoreError) -> None:
        """Raises an error for everybody who watches these trees; who comes next begins anew."""
        for tree_id in tree_ids:
            if tail := self._tails.pop(tree_id, None):
                tail.fail(error)


class _Tail:
    """The newest events of one feed, read once for all who watch it.

    last: the newest of all. news: set, and replaced by another one, whenever there is something new.
    """

    def __init__(self, last: Event) -> None:
        self.last = last
        self.news = asyncio.Event()
        self.watchers = 0
        self._events: deque[Event] = deque([last], maxlen=_KEPT)
        self._error: StoreError | None = None

    def add(self, events: Sequence[Event]) -> None:
        """Adds what was read later than `last`."""
        if events[0].number != self.last.number + 1:
            self._events.clear()  # it was overtaken by the trimming
        self._events.extend(events)
        self.last = events[-1]
        self.wake()

    def later_than(self, after: str) -> list[Event] | None:
        """All events later than the event `after`; None: they are not all at hand, if there are any."""
        if not after and self._events[0].number == 1:
            return list(self._events)
        at = number_of(after) - self._events[0].number
        if 0 <= at < len(self._events) and self._events[at].event_id == after:
            return list(islice(self._events, at + 1, None))
        return None

    def fail(self, error: StoreError) -> None:
        self._error = error
        self.wake()

    def wake(self) -> None:
        self.news.set()
        self.news = asyncio.Event()

    def check(self) -> None:
        """Raises the error that has ended the feed."""
        if self._error is not None:
            raise self._error


def ends(event: Event) -> bool:
    """Whether this is the last event of its tree."""
    return event.kind == "tree" and TreeState(event.fields["to"]).terminal
