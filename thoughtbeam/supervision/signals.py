"""Requests to stop, recorded instead of raised: code that starts and stops children is never torn apart."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequestedError(Exception):
    """Somebody asked this process to stop."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signal_number).name}")
        self.signal_number = signal_number


class StopSignals:
    """While entered, SIGINT, SIGTERM and SIGHUP only leave a note; only in the main thread.

    A program polls it between its steps (`check`), sleeps on it (`wait`), and lets a long call into code that
    starts nothing be interrupted (`interruptible`). Signals after the first change nothing.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._interrupting = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # nohup: who starts a program with SIGHUP ignored wants it to stay so
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def check(self) -> None:
        """Raises StopRequestedError if a signal has come."""
        if self.received is not None:
            raise StopRequestedError(self.received)

    def wait(self, seconds: float) -> None:
        """Sleeps, and raises StopRequestedError as soon as a signal comes."""
        self.check()
        select.select([self._reader], [], [], seconds)
        self.check()

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """In here the first signal raises KeyboardInterrupt. Nothing may be started or stopped in here."""
        self._interrupting = True
        try:
            if self.received is not None:
                raise KeyboardInterrupt
            yield
        finally:
            self._interrupting = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            with contextlib.suppress(BlockingIOError):
                os.write(self._writer, b"!")
        if self._interrupting:
            # once only: what handles the interrupt must not be interrupted
            self._interrupting = False
            raise KeyboardInterrupt
