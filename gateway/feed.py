"""Follows one tree's event feed to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from tree_store.events import Event
from tree_store.model import TreeState
from tree_store.store import TreeStore

# Seconds between two looks at a feed in which nothing happens; also how soon a stop is noticed.
_BLOCK = 1.0


async def follow(store: TreeStore, tree_id: str, stop: asyncio.Event) -> AsyncGenerator[Event, None]:
    """All events of a tree, in order, until it has ended or `stop` is set.

    Raises TreeNotFoundError when the tree is not or no longer there.
    """
    after = ""
    while not stop.is_set():
        events = await store.events(tree_id, after, block=_BLOCK)
        for event in events:
            yield event
            after = event.event_id
            if ends(event):
                return


def ends(event: Event) -> bool:
    """Whether this is the last event of its tree."""
    return event.kind == "tree" and TreeState(event.fields["to"]).terminal
