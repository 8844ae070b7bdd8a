"""Keeps an engine running: one that dies is started again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from prm_worker.process_reward.engine import EngineDiedError, PoolingEngine
from prm_worker.process_reward.launch import EngineStartError
from thoughtbeam.runtime.log import EventLogger

log = EventLogger("prm_worker.process_reward.keeper")

_FIRST_DELAY, _LONGEST_DELAY = 1.0, 60.0  # seconds before an engine is started again
_STEADY = 60.0  # an engine that has run for so many seconds is started again after the first delay

Start = Callable[[], Awaitable[PoolingEngine]]


class EngineKeeper:
    """Scores with the engine that runs now: the one that `open` started, or with `run` its successor.

    start: makes an engine. first_delay: seconds before the first attempt to replace an engine that died; the
    delay doubles with each further one. restarts: engines that were replaced.
    """

    def __init__(self, start: Start, first_delay: float = _FIRST_DELAY) -> None:
        self.restarts = 0
        self._engine: PoolingEngine | None = None
        self._start = start
        self._first_delay = first_delay

    @property
    def engine(self) -> PoolingEngine:
        """Raises EngineDiedError when there is none at the moment."""
        if self._engine is None or self._engine.died.is_set():
            raise EngineDiedError
        return self._engine

    async def open(self) -> None:
        """Starts the first engine. Raises EngineStartError."""
        self._engine = await self._start()

    async def run(self, tell: Callable[[bool], Awaitable[None]]) -> None:
        """Replaces engines that die until it is cancelled, and closes the last one then.

        tell: told False when an engine has died, and True when the next one scores.
        """
        delay = self._first_delay
        try:
            while self._engine is not None:
                began = time.monotonic()
                await self._engine.died.wait()
                lived = time.monotonic() - began
                if lived > _STEADY:
                    delay = self._first_delay
                log.error("engine_died", after=round(lived, 1), restart_in=delay)
                lost, self._engine = self._engine, None
                await tell(False)
                await lost.close()
                delay = await self._renew(delay)
                await tell(True)
        finally:
            if self._engine is not None:
                await self._engine.close()

    async def _renew(self, delay: float) -> float:
        """Starts an engine; returns the delay before the next one."""
        while True:
            await asyncio.sleep(delay)
            delay = min(2 * delay, _LONGEST_DELAY)
            try:
                self._engine = await self._start()
            except EngineStartError as error:
                log.error("engine_not_started", error=error, restart_in=delay)
            else:
                self.restarts += 1
                return delay
