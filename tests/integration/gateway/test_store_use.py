"""What a gateway with many clients asks of the store's connections."""

from __future__ import annotations

import asyncio

import pytest

from tests.integration.gateway.harness import PATIENCE, Gateway


@pytest.mark.no_asyncio_debug
async def test_more_commands_than_connections_wait_their_turn(gateway: Gateway) -> None:
    await asyncio.gather(*(gateway.store.ping() for _ in range(1000)))


async def test_a_task_that_is_told_to_end_amid_a_command_does_end(gateway: Gateway) -> None:
    # given a task that sends one command after the other, and is cancelled at any moment of them
    async def busy() -> None:
        while True:
            await gateway.store.ping()

    for moment in range(300):
        task = asyncio.create_task(busy())
        for _ in range(moment % 17):
            await asyncio.sleep(0)
        task.cancel()
        # then it is never as if nobody had asked (asyncio.wait does not ask again)
        await asyncio.wait({task}, timeout=PATIENCE)
        assert task.cancelled()
