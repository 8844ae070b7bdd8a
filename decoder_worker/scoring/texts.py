"""The texts of thoughts, as a scorer reads them that takes text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from decoder_worker.engine.base import Tokenizer
from decoder_worker.tree_view import Trace


class ThoughtTexts:
    """Those of one search. messages: (role, content) of the conversation that it answers."""

    def __init__(self, messages: Sequence[tuple[str, str]], tokenizer: Tokenizer) -> None:
        self.messages = messages
        self._tokenizer = tokenizer
        self._own: dict[int, list[str]] = {}  # by node; decoded once

    def steps(self, trace: Trace, count: int) -> list[str]:
        """The first `count` thoughts of a trace, inherited ones included, without the line breaks at their
        ends; one may be empty."""
        parts: list[list[str]] = []
        node: Trace | None = trace
        while node is not None and count:
            if count > node.inherited_thoughts:
                parts.append(self._of(node, count - node.inherited_thoughts))
                count = node.inherited_thoughts
            node = node.parent
        return [step for part in reversed(parts) for step in part]

    def drop(self, node: int) -> None:
        """The trace has ended; a branch of it that asks once more has them decoded again."""
        self._own.pop(node, None)

    def _of(self, trace: Trace, count: int) -> list[str]:
        own = self._own.setdefault(trace.number, [])
        if len(own) < count:
            ends = [trace.branch_position, *(thought.position for thought in trace.thoughts[:count])]
            for start, end in list(pairwise(ends))[len(own) :]:
                own.append(self._tokenizer.decode(trace.own_between(start, end)).strip("\n"))
        return own[:count]
