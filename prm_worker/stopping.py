"""How a prm worker of either kind ends: the calls that run may end, for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thoughtbeam.runtime.rpc import Server

# What a call that was ended may take to be answered.
_LAST_WORDS = 1.0


async def stop_after_calls(server: Server, grace: float, end_calls: Callable[[], None]) -> None:
    """Stops the server once its calls have ended. end_calls: ends those that still run after `grace`
    seconds."""
    last_call = asyncio.get_running_loop().call_later(grace, end_calls)
    await server.stop(grace + _LAST_WORDS)
    last_call.cancel()
