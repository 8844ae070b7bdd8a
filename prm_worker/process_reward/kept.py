"""A cache with a bound on its size."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """Calls `make`, and keeps what it made for the keys that were used last: as many as are of at most `room`
    together, by `size`. For any number of threads.

    used: size of what is kept.
    """

    def __init__(self, make: Callable[[K], V], size: Callable[[K, V], int], room: int) -> None:
        self.used = 0
        self._make = make
        self._size = size
        self._room = room
        self._lock = Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()

    def __call__(self, key: K) -> V:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = self._make(key)
        with self._lock:
            # another thread may have made it meanwhile, and what is too large alone would drive out all else
            if key not in self._kept and self._size(key, made) <= self._room:
                self._kept[key] = made
                self.used += self._size(key, made)
                while self.used > self._room:
                    self.used -= self._size(*self._kept.popitem(last=False))
        return made
