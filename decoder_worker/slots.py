"""The B slots of one engine and the traces that wait for them, first come first served.

This is SART's order of service (arXiv 2505.13326) for every policy: all searches of a worker share one
queue of pending traces, and a new request is taken only when a slot is free and no trace is pending. At most
B traces are in the engine at once; its own waiting queue is only a safety net.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Slots(Generic[T]):
    """Who decodes and who waits. Keys are trace ids; a key is either waiting or in a slot."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"slots must be at least 1, not {size}")
        self.size = size
        self._waiting: OrderedDict[str, T] = OrderedDict()
        self._taken: set[str] = set()

    @property
    def free(self) -> int:
        return self.size - len(self._taken)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def accepts_request(self) -> bool:
        """Whether a new request may be taken: its first trace would be served at once."""
        return self.free > 0 and not self._waiting

    def submit(self, key: str, item: T) -> None:
        """Puts a trace at the end of the queue."""
        if key in self._waiting or key in self._taken:
            raise ValueError(f"trace {key} has a place already")
        self._waiting[key] = item

    def grant(self) -> list[T]:
        """Moves traces from the queue into free slots, in order, and returns them."""
        granted = []
        while self._waiting and self.free:
            key, item = self._waiting.popitem(last=False)
            self._taken.add(key)
            granted.append(item)
        return granted

    def release(self, key: str) -> None:
        """Gives up a place, in the queue or in a slot. Unknown keys are ignored."""
        if self._waiting.pop(key, None) is None:
            self._taken.discard(key)
