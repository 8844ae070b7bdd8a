"""What a test of a program in this process has to leave: no task, no socket, nothing that went wrong unseen.

A conftest that imports the fixture has it for all its tests.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

PATIENCE = 20.0  # seconds; what was told to end takes some turns, and gRPC's own threads theirs


@pytest.fixture(autouse=True)
async def leaves_nothing_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Runs the test with asyncio in debug mode, unless it is marked `no_asyncio_debug`, and looks after the
    test and all its other fixtures."""
    async with nothing_left(debug=request.node.get_closest_marker("no_asyncio_debug") is None):
        yield


@asynccontextmanager
async def nothing_left(*, debug: bool) -> AsyncIterator[None]:
    """Fails when, after the block, a task that began in it still runs or a socket that it opened is still
    open, or when the loop was told of an error that nobody took: an exception never retrieved, a task
    destroyed while it was pending."""
    grpc.aio.init_grpc_aio()  # its own sockets are there from now on, whatever is open besides
    loop = asyncio.get_running_loop()
    unseen: list[str] = []

    def on_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        unseen.append(f"{context.get('message')}: {context}")

    before = loop.get_exception_handler(), loop.get_debug(), loop.slow_callback_duration
    tasks, sockets = asyncio.all_tasks(), open_sockets()
    gc.freeze()  # so that the collector looks only at what comes now
    loop.set_exception_handler(on_error)
    loop.set_debug(debug)
    loop.slow_callback_duration = PATIENCE  # a slow machine is no error
    try:
        yield
        left = await _left(tasks, sockets)
    finally:
        gc.unfreeze()
        loop.set_exception_handler(before[0])
        loop.set_debug(before[1])
        loop.slow_callback_duration = before[2]
    if unseen or left:
        pytest.fail("\n".join(["left behind:", *unseen, *left]))


async def _left(tasks: set[asyncio.Task[Any]], sockets: set[str]) -> list[str]:
    """What there is beyond these, once it has had its time to go."""
    own = asyncio.current_task()
    gc.collect()  # what is only waiting for the collector shows now, in the test whose doing it is
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE
    while True:
        left = [repr(task) for task in asyncio.all_tasks() - tasks if task is not own]
        left += sorted(open_sockets() - sockets)
        if not left or loop.time() > until:
            return left
        await asyncio.sleep(0.01)


def open_sockets() -> set[str]:
    """The sockets that this process has open, by their inodes."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue  # that of the listing itself, or one closed just now
        if target.startswith("socket:"):
            found.add(target)
    return found
