"""What the integration tests look for when a test has ended is found."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.integration import discipline
from tests.integration.discipline import nothing_left


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discipline, "PATIENCE", 0.2)


async def test_a_tidy_block_passes_though_what_it_told_to_end_takes_its_time() -> None:
    async with nothing_left(debug=True):
        assert asyncio.get_running_loop().get_debug()
        asyncio.get_running_loop().call_later(0.05, asyncio.create_task(asyncio.Event().wait()).cancel)


async def test_a_task_that_still_runs() -> None:
    with pytest.raises(pytest.fail.Exception, match="forgotten"):
        async with nothing_left(debug=True):
            task = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
    task.cancel()


async def test_a_socket_that_is_still_open() -> None:
    opened: list[socket.socket] = []
    with pytest.raises(pytest.fail.Exception, match="socket:"):
        async with nothing_left(debug=True):
            opened.append(socket.socket())
    opened.pop().close()


async def test_an_exception_that_nobody_takes() -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    with pytest.raises(pytest.fail.Exception, match="never retrieved"):
        async with nothing_left(debug=False):
            await asyncio.wait([asyncio.create_task(fails())])
