"""Splits the time of one thread among named parts of a program, coroutines included.

A profiler counts every call and so weighs small functions most. Here only the functions that are named pay,
and what that costs is measured and taken off again. Time is that of the CPU: what else the machine does does
not count.
"""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import ExitStack, contextmanager
from time import thread_time_ns
from typing import Any
from unittest.mock import patch

# The part that the garbage collector is, whoever was interrupted by it.
COLLECTOR = "Python's garbage collector"

_CALIBRATION_CALLS = 20_000


class Clock:
    """Nanoseconds and calls by part. A part that runs inside another one takes its time from it."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._ns: Counter[str] = Counter()
        self._inside: Counter[str] = Counter()  # parts entered from this one
        self._running: list[str] = []
        self._since = 0
        self._own_cost, self._outer_cost = 0.0, 0.0

    def reset(self) -> None:
        """Forgets what was measured. Not inside a part."""
        for counter in (self.calls, self._ns, self._inside):
            counter.clear()

    def seconds(self) -> dict[str, float]:
        """Time of every part, without what measuring it cost."""
        return {
            part: max(0.0, ns - self._own_cost * self.calls[part] - self._outer_cost * self._inside[part])
            / 1e9
            for part, ns in self._ns.items()
        }

    @property
    def overhead(self) -> float:
        """Seconds that measuring has cost so far."""
        return (self._own_cost + self._outer_cost) * sum(self.calls.values()) / 1e9

    def enter(self, part: str) -> None:
        now = thread_time_ns()
        if self._running:
            self._ns[self._running[-1]] += now - self._since
            self._inside[self._running[-1]] += 1
        self._running.append(part)
        self.calls[part] += 1
        self._since = thread_time_ns()

    def leave(self) -> None:
        now = thread_time_ns()
        self._ns[self._running.pop()] += now - self._since
        self._since = thread_time_ns()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The block is a part."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    @contextmanager
    def watching(
        self, functions: dict[tuple[Any, str], str], coroutines: dict[tuple[Any, str], str]
    ) -> Iterator[None]:
        """Measures these for the length of the block. (owner, name of the attribute): part.

        Of a coroutine function the time between its pauses counts, whatever runs it.
        """
        self._calibrate()
        with ExitStack() as patches:
            gc.callbacks.append(self._collecting)
            patches.callback(gc.callbacks.remove, self._collecting)
            for (owner, name), part in functions.items():
                patches.enter_context(patch.object(owner, name, self._timed(getattr(owner, name), part)))
            for (owner, name), part in coroutines.items():
                patches.enter_context(patch.object(owner, name, self._driven(getattr(owner, name), part)))
            yield

    def _collecting(self, phase: str, info: object) -> None:
        if phase == "start":
            self.enter(COLLECTOR)
        else:
            self.leave()

    def _timed(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.leave()

        return timed

    def _driven(self, function: Callable[..., Coroutine[Any, Any, Any]], part: str) -> Callable[..., Any]:
        @functools.wraps(function)
        async def driven(*args: Any, **kwargs: Any) -> Any:
            return await _Driven(self, part, function(*args, **kwargs))

        return driven

    def _calibrate(self) -> None:
        def nothing() -> None:
            pass

        timed = self._timed(nothing, "inner")
        began = thread_time_ns()
        for _ in range(_CALIBRATION_CALLS):
            nothing()
        bare = (thread_time_ns() - began) / _CALIBRATION_CALLS
        self._own_cost = self._outer_cost = 0.0
        with self.part("outer"):
            for _ in range(_CALIBRATION_CALLS):
                timed()
        # the call itself would have been there without us: it is left to the inner part
        self._own_cost = max(0.0, self._ns["inner"] / _CALIBRATION_CALLS - bare)
        self._outer_cost = self._ns["outer"] / _CALIBRATION_CALLS
        self.reset()


class _Driven:
    """Awaits a coroutine and measures each of its turns."""

    def __init__(self, clock: Clock, part: str, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._clock, self._part, self._coroutine = clock, part, coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        while True:
            self._clock.enter(self._part)
            try:
                paused = self._coroutine.send(value) if error is None else self._coroutine.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                self._clock.leave()
            value = error = None
            try:
                value = yield paused
            except BaseException as raised:
                error = raised
