"""Between the engine, which knows traces by one name each, and the searches, which know them by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from decoder_worker.engine.base import TraceOutput

if TYPE_CHECKING:
    from decoder_worker.search import Search


def trace_id(tree_id: str, node: int) -> str:
    """The name of a trace at the engine."""
    return f"{tree_id}/{node}"


def by_search(
    outputs: Sequence[TraceOutput], places: Mapping[str, tuple[Search, int]]
) -> list[tuple[Search, list[tuple[int, TraceOutput]]]]:
    """Each search's part of one step's outputs, by node. places: of the traces whose outputs count."""
    parts: dict[Search, list[tuple[int, TraceOutput]]] = {}
    last: Search | None = None  # neighbours are mostly of one tree
    part: list[tuple[int, TraceOutput]] = []
    for output in outputs:
        place = places.get(output.trace_id)
        if place is not None:
            search, number = place
            if search is not last:
                last, part = search, parts.setdefault(search, [])
            part.append((number, output))
    return list(parts.items())
