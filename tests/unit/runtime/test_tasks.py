"""A task that is cancelled ends, at whatever moment, and whatever else fails at the same time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from thoughtbeam.runtime.tasks import cancellation_kept, task_group


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise OSError("broken")


async def one_child_fails() -> None:
    async with task_group() as group:
        group.create_task(fail())
        group.create_task(for_ever())


async def test_the_first_error_comes_as_it_is() -> None:
    with pytest.raises(OSError, match="broken"):
        await one_child_fails()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("steps", range(12))
async def test_a_cancellation_wins_over_the_error_of_a_child_at_any_moment(steps: int) -> None:
    outcome: list[str] = []

    async def ending_slowly() -> None:
        try:
            await for_ever()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def reconnects_for_ever() -> None:
        while True:
            try:
                async with task_group() as group:
                    group.create_task(ending_slowly())
                    group.create_task(fail())
                    await for_ever()
            except OSError:
                outcome.append("reconnected")

    task = asyncio.create_task(reconnects_for_ever())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 10)


async def test_a_cancellation_wins_over_the_error_of_the_body() -> None:
    async def connected() -> None:
        parent = asyncio.current_task()
        assert parent is not None

        async def cancels_its_parent_while_it_ends() -> None:
            try:
                await for_ever()
            finally:
                parent.cancel()

        try:
            async with task_group() as group:
                group.create_task(cancels_its_parent_while_it_ends())
                await asyncio.sleep(0)
                await fail()
        except OSError:
            pytest.fail("the cancellation was lost")

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(connected())


async def test_a_cancellation_that_was_swallowed_inside_is_raised() -> None:
    async def swallows() -> None:
        with cancellation_kept(), suppress(asyncio.CancelledError):
            await for_ever()
        pytest.fail("the task went on")

    task = asyncio.create_task(swallows())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_around_a_group_is_no_cancellation() -> None:
    async def timed() -> None:
        async with asyncio.timeout(0.01), task_group() as group:
            group.create_task(for_ever())
            await for_ever()

    with pytest.raises(TimeoutError):
        await timed()
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
