"""Structured concurrency without asyncio's gap: a cancelled task ends, whatever else happens to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any


@contextmanager
def cancellation_kept() -> Iterator[None]:
    """Raises a cancellation of the current task that came inside and got lost there.

    Before Python 3.12 asyncio.wait_for returns, and before 3.13 asyncio.TaskGroup raises its children's
    errors, instead of being cancelled when both come at once: the task would go on as if nobody had asked
    it to end, and whoever waits for its end waits for ever.
    """
    task = asyncio.current_task()
    assert task is not None
    asked_before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > asked_before:
            raise asyncio.CancelledError


class TaskGroup(asyncio.TaskGroup):  # noqa: TID251
    """See task_group."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: set[asyncio.Task[Any]] = set()

    def create_task(self, *args: Any, **named: Any) -> asyncio.Task[Any]:
        """As asyncio's."""
        task = super().create_task(*args, **named)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def all_ended(self) -> None:
        """Waits for the children inside the block, not at its exit: an error that comes there leaves its
        parent marked as cancelled before Python 3.12, which nobody could tell from the real thing."""
        while self._under_way:
            await asyncio.wait(self._under_way)


@asynccontextmanager
async def task_group() -> AsyncIterator[TaskGroup]:
    """asyncio.TaskGroup that raises its first error as it is, and loses no cancellation."""
    with cancellation_kept():
        try:
            async with TaskGroup() as group:
                yield group
                await group.all_ended()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
