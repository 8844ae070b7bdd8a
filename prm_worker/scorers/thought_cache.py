"""Which slots of a fixed pool hold which thoughts of which traces.

A slot holds one thought. Traces that share their beginning share its slots, so that a branch costs its own
thoughts only; a slot is free again when no trace has it any more. When slots run out, the traces that were
not heard of for the longest time are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Slots: TypeAlias = npt.NDArray[np.int32]
TraceKey: TypeAlias = tuple[str, int]  # tree id, node

_NONE: Slots = np.empty(0, np.int32)
# Bound on what traces list together, as a multiple of the slots: sharing saves slots, not lists.
_LISTED = 8


class NoRoomError(Exception):
    """No slots are left and no trace may be forgotten."""


class ThoughtCache:
    """Slots by trace. size: slots in the pool, at least 1. evicted: traces forgotten for room so far."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.evicted = 0
        self._references = np.zeros(size, np.int32)
        self._free = np.arange(size - 1, -1, -1, dtype=np.int32)  # a stack; its top is at _free_count
        self._free_count = size
        self._listed = 0
        self._traces: OrderedDict[TraceKey, Slots] = OrderedDict()  # least recently used first
        self._nodes: dict[str, set[int]] = {}

    def __len__(self) -> int:
        return len(self._traces)

    @property
    def used(self) -> int:
        """Slots that hold a thought."""
        return self.size - self._free_count

    def slots(self, key: TraceKey) -> Slots:
        """The slots of a trace's thoughts, in order; none for one that is not known."""
        return self._traces.get(key, _NONE)

    def touch(self, key: TraceKey) -> None:
        """Counts a trace as just used, if it is known."""
        if key in self._traces:
            self._traces.move_to_end(key)

    def begin(self, key: TraceKey, source: TraceKey, thoughts: int) -> None:
        """Makes `key` consist of the first thoughts of `source`, which may be itself and has that many."""
        kept = self.slots(source)[:thoughts]
        self._references[kept] += 1
        self.drop(key)
        self._traces[key] = kept
        self._nodes.setdefault(key[0], set()).add(key[1])
        self._listed += len(kept)

    def append(self, key: TraceKey, thoughts: int, pinned: Collection[TraceKey]) -> Slots:
        """Gives a known trace so many slots more, and returns all it has. Others, but those `pinned`, may be
        forgotten for it. Raises NoRoomError, and then has changed nothing of `key`."""
        before = self._traces[key]
        self._make_room(thoughts, {key, *pinned})
        self._free_count -= thoughts
        new = self._free[self._free_count : self._free_count + thoughts][::-1]
        self._references[new] = 1
        self._listed += thoughts
        self._traces[key] = np.concatenate((before, new))
        self._traces.move_to_end(key)
        return self._traces[key]

    def drop(self, key: TraceKey) -> None:
        """Forgets a trace, if it is known."""
        slots = self._traces.pop(key, None)
        if slots is None:
            return
        self._listed -= len(slots)
        self._references[slots] -= 1
        unused = slots[self._references[slots] == 0]
        self._free[self._free_count : self._free_count + len(unused)] = unused[::-1]
        self._free_count += len(unused)
        nodes = self._nodes[key[0]]
        nodes.discard(key[1])
        if not nodes:
            del self._nodes[key[0]]

    def drop_nodes(self, tree_id: str, nodes: Sequence[int]) -> None:
        """Forgets traces of a tree; none named: all of them."""
        for node in nodes or tuple(self._nodes.get(tree_id, ())):
            self.drop((tree_id, node))

    def _make_room(self, slots: int, pinned: Collection[TraceKey]) -> None:
        if self._fits(slots):
            return
        for key in tuple(self._traces):
            if key not in pinned:
                self.drop(key)
                self.evicted += 1
                if self._fits(slots):
                    return
        raise NoRoomError

    def _fits(self, slots: int) -> bool:
        return slots <= self._free_count and self._listed + slots <= _LISTED * self.size
