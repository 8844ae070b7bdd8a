"""Processes in which a computation can be killed, for what may run for ever: parsers, patterns of clients."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from pebble import ProcessExpired, ProcessPool

T = TypeVar("T")

MOST_MEMORY = 1024**3  # bytes of address space
_PR_SET_PDEATHSIG = 1


class KilledError(Exception):
    """A computation ran longer than it may, took more memory than it may, or its process died of it."""


class KillableProcesses:
    """A few processes, started when they are first needed, for any number of tasks of any event loops.

    warm_up: called in each new process before its first computation; it must come from a module that imports
    little. seconds: longest run of one computation.

    A new process also imports the program's main module again, unless that is a package's `__main__` (as in
    `python -m decoder_worker`): a program that is started in another way has to keep its main module small.
    """

    def __init__(self, warm_up: Callable[[], None], *, workers: int, seconds: float) -> None:
        self._warm_up = warm_up
        self._workers = workers
        self._seconds = seconds
        self._pool: ProcessPool | None = None
        self._lock = threading.Lock()  # of the pool's beginning and end

    @property
    def started(self) -> bool:
        return self._pool is not None

    async def run(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """A call in one of the processes; all of it must be picklable. What it raises is raised here.

        Raises KilledError. The time that it waits for a process does not count.
        """
        try:
            with self._lock:
                future = self._running_pool().schedule(function, args, named, timeout=self._seconds)
        except RuntimeError as error:  # it broke this moment
            raise KilledError(str(error)) from error
        try:
            return await asyncio.wrap_future(future)
        except (TimeoutError, MemoryError, ProcessExpired, BrokenProcessPool) as error:
            raise KilledError(str(error)) from error

    async def close(self) -> None:
        """Kills the processes. Nothing may be running any more."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()
            await asyncio.to_thread(pool.join)

    def _running_pool(self) -> ProcessPool:
        if self._pool is not None and not self._pool.active:
            # a process that is killed from outside takes the pool with it
            self._pool.stop()
            self._pool.join()
            self._pool = None
        if self._pool is None:
            self._pool = ProcessPool(
                max_workers=self._workers,
                initializer=_begin,
                initargs=(os.getpid(), self._warm_up),
                # fork would copy the engine; a fresh process also stays small
                context=multiprocessing.get_context("spawn"),
            )
        return self._pool


def _begin(parent: int, warm_up: Callable[[], None]) -> None:
    """Runs first in every process: so that it dies with its parent, at once when told to, and stays small."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    warm_up()
