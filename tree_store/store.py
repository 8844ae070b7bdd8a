"""The tree store as its users see it."""

from __future__ import annotations

from tree_store.events import EventFeed
from tree_store.leases import Sweep
from tree_store.traces import TraceReads


class TreeStore(EventFeed, TraceReads, Sweep):
    """All trees, on one Redis or Valkey: `TreeStore.connect(url)`, `close()` in the end.

    Its methods live with their subject: reading trees in reads.py and their traces in traces.py,
    transitions in writes.py, feeds in events.py, the queue in dispatch_queue.py, workers in presence.py, and
    what falls due in leases.py. Any of them can raise StoreUnavailableError. One store serves any number of
    tasks of one event loop.
    """
