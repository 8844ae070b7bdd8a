"""Room in the KV cache: never more than there is, in the order of arrival."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from prm_worker.process_reward.room import Room


async def test_as_many_are_in_as_fit_and_the_others_follow_in_their_order() -> None:
    room = Room(10)
    inside: list[str] = []
    gates = {name: asyncio.Event() for name in "abcd"}

    async def visit(name: str, blocks: int) -> None:
        async with room.taken(blocks):
            inside.append(name)
            await gates[name].wait()
        inside.remove(name)

    async with asyncio.TaskGroup() as group:
        for name, blocks in (("a", 6), ("b", 3), ("c", 7), ("d", 1)):
            group.create_task(visit(name, blocks))
        await asyncio.sleep(0)
        assert inside == ["a", "b"]
        gates["b"].set()
        await asyncio.sleep(0.01)
        assert inside == ["a"]  # d would fit, but c came before it
        gates["a"].set()
        await asyncio.sleep(0.01)
        assert inside == ["c", "d"]
        for gate in gates.values():
            gate.set()


@pytest.mark.parametrize("moment", ["waiting", "called"])
async def test_who_gives_up_takes_no_room(moment: str) -> None:
    room = Room(4)
    async with AsyncExitStack() as first:
        await first.enter_async_context(room.taken(4))
        waiting = asyncio.create_task(AsyncExitStack().enter_async_context(room.taken(3)))
        await asyncio.sleep(0)
        if moment == "waiting":
            waiting.cancel()
    if moment == "called":  # its turn has come, but it has not gone on yet
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(1), room.taken(4):
        pass


async def test_more_than_there_is_is_refused() -> None:
    with pytest.raises(ValueError, match="5 blocks are wanted; there are 4"):
        async with Room(4).taken(5):
            pass
