"""Clients and workers that come and go at any moment leave nothing behind, and nothing accepted is lost."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random

import grpc
import pytest

from gateway.config import GatewayConfig
from tests.integration.gateway.harness import Gateway, eventually, queue_shrinks_to, request, running_gateway
from tests.integration.gateway.scripted_worker import scripted_worker
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.v1 import reasoning_pb2_grpc
from tree_store.errors import StaleEpochError
from tree_store.model import TreeRecord, TreeState

ROUNDS, CLIENTS, WORKERS = 6, 20, 5


async def passing_client(gateway: Gateway, chance: random.Random) -> None:
    """Asks, reads a little or nothing, and breaks the connection."""
    async with open_channel(f"127.0.0.1:{gateway.port}") as channel:
        asked = request(cancel_on_disconnect=chance.random() < 0.5)
        call = reasoning_pb2_grpc.ReasoningServiceStub(channel).Reason(asked)
        await asyncio.sleep(chance.random() * 0.05)
        if chance.random() < 0.5:
            assert await call.read() is not grpc.aio.EOF


async def passing_worker(gateway: Gateway, chance: random.Random, name: str) -> None:
    """Takes what it is given, does nothing with it, and breaks the connection."""
    async with (
        open_channel(f"127.0.0.1:{gateway.port}") as channel,
        scripted_worker(channel, gateway.store, name) as worker,
    ):
        await worker.grant(chance.randint(0, 5))
        await asyncio.sleep(chance.random() * 0.1)


@pytest.mark.no_asyncio_debug
async def test_what_comes_and_goes_leaves_nothing_behind(
    config: GatewayConfig, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(1)
    async with running_gateway(dataclasses.replace(config, lease=0.3)) as gateway:

        async def trees() -> list[TreeRecord]:
            return await gateway.store.list_trees(1000)

        # given tasks as they are when nobody is connected but ourselves
        await gateway.knows_no_policies()
        before = len(asyncio.all_tasks())
        for _ in range(ROUNDS):
            await asyncio.gather(
                *(passing_client(gateway, chance) for _ in range(CLIENTS)),
                *(passing_worker(gateway, chance, f"w{n}") for n in range(WORKERS)),
            )

        # then the tasks of those that have gone end
        async def quiet() -> bool:
            return len(asyncio.all_tasks()) <= before

        await eventually(quiet)
        # and a worker that stays finishes whatever was accepted and not cancelled
        async with scripted_worker(gateway.channel, gateway.store, "last") as worker:
            await worker.grant(ROUNDS * CLIENTS)

            async def all_ended() -> bool:
                while not worker.assignments.empty():
                    search = await worker.take()
                    await worker.grant()
                    with contextlib.suppress(StaleEpochError):  # too slow: it will come again
                        await gateway.store.renew(search.tree_id, search.epoch, 60)
                        await search.answer()
                return all(tree.state.terminal for tree in await trees())

            await eventually(all_ended)
            # an entry whose client left before it was noted in the tree goes when it is read
            await queue_shrinks_to(gateway.store, 0)
        ended = {tree.state for tree in await trees()}

    assert ended == {TreeState.SUCCEEDED, TreeState.CANCELLED}
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []
