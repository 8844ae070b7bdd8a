"""SIGTERM and SIGINT: they end a program at once while it starts, and stop it in order once it serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


def stop_on_signals(again: asyncio.Event | None = None) -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets. again: one that the next of them sets."""
    stop = asyncio.Event()

    def on_signal() -> None:
        if again is not None and stop.is_set():
            again.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, on_signal)
    return stop


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """Inside, SIGTERM and SIGINT end the process with status 128 + number, until `stop_on_signals`.

    That is what they do by default, but not to the first process of a container, which the kernel spares a
    signal that it does not handle, and without a traceback. Main thread only.
    """
    before = {number: signal.signal(number, _end) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)
