"""A KV cache for the scripted engine: blocks of tokens, shared by content as vLLM's prefix cache shares
them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Residence:
    """The blocks of one sequence. blocks: its full ones, each named by all tokens up to its end. tail:
    tokens of its last, partial block. cached: tokens that were there before it came."""

    blocks: list[int] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)
    cached: int = 0


class SharedKv:
    """`total` blocks of `block_size` tokens. Full blocks that nobody uses stay until their room is needed."""

    def __init__(self, total: int, block_size: int) -> None:
        self.total = total
        self.block_size = block_size
        self._uses: Counter[int] = Counter()
        self._partial = 0
        self._idle: OrderedDict[int, None] = OrderedDict()

    @property
    def used(self) -> int:
        """Blocks in use, shared ones counted once."""
        return len(self._uses) + self._partial

    def admit(self, tokens: Sequence[int]) -> Residence | None:
        """Takes the blocks of a whole sequence; None when there is no room for them."""
        size = self.block_size
        edge = len(tokens) - len(tokens) % size
        blocks: list[int] = []
        for start in range(0, edge, size):
            blocks.append(_name(blocks, tokens[start : start + size]))
        new = sum(1 for block in blocks if block not in self._uses)
        if self.used + new + (edge < len(tokens)) > self.total:
            return None
        found = next(
            (n for n, block in enumerate(blocks) if block not in self._uses and block not in self._idle),
            len(blocks),
        )
        self._use(*blocks)
        self._partial += edge < len(tokens)
        # as in vLLM, the last token is computed in any case
        cached = min(found, (len(tokens) - 1) // size) * size
        return Residence(blocks, list(tokens[edge:]), cached)

    def grow(self, residence: Residence, token: int) -> bool:
        """Adds a token to a sequence; False, and nothing has changed, when that needs a block and none is
        free."""
        if not residence.tail:
            if self.used >= self.total:
                return False
            self._partial += 1
            self._make_room()
        residence.tail.append(token)
        if len(residence.tail) == self.block_size:
            self._partial -= 1
            residence.blocks.append(_name(residence.blocks, residence.tail))
            residence.tail = []
            self._use(residence.blocks[-1])
        return True

    def release(self, residence: Residence) -> None:
        """Gives a sequence's blocks back."""
        self._partial -= bool(residence.tail)
        # the end of a sequence is of less use to others than its start, so it goes first
        for block in reversed(residence.blocks):
            self._uses[block] -= 1
            if not self._uses[block]:
                del self._uses[block]
                self._idle[block] = None
        residence.blocks, residence.tail = [], []

    def _use(self, *blocks: int) -> None:
        self._uses.update(blocks)
        for block in blocks:
            self._idle.pop(block, None)
        self._make_room()

    def _make_room(self) -> None:
        while self.used + len(self._idle) > self.total:
            self._idle.popitem(last=False)


def _name(before: Sequence[int], tokens: Sequence[int]) -> int:
    return hash((before[-1] if before else 0, *tokens))
