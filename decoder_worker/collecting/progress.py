"""How far a collection is, on stderr: a line that is written over on a terminal, else one now and then."""

from __future__ import annotations

import sys
import time

from decoder_worker.collecting.collector import Tally

_EVERY = 10.0  # seconds between two lines in a log
_EVERY_ON_TERMINAL = 0.5


class Progress:
    """Prints a tally when it is time for it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._printed = -_EVERY
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        ended = tally.done + tally.failed >= tally.questions
        every = _EVERY_ON_TERMINAL if self._terminal else _EVERY
        if sys.stderr is None or (now - self._printed < every and not ended):
            return
        self._printed = now
        line = line_of(tally, now - self._began)
        if self._terminal:
            print(f"\r\x1b[K{line}", end="\n" if ended else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def line_of(tally: Tally, seconds: float) -> str:
    """One line. seconds: since this run began."""
    parts = [f"{tally.done}/{tally.questions} questions", f"{tally.traces} traces"]
    if tally.traces:
        parts.append(f"{tally.right / tally.traces:.0%} right")
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    parts.append(f"{tally.tokens / max(seconds, 1e-9):,.0f} tokens/s")
    ended_now = tally.done + tally.failed - tally.before
    left = tally.questions - tally.done - tally.failed
    if ended_now and left > 0:
        parts.append(f"{_duration(left * seconds / ended_now)} left")
    else:
        parts.append(f"{_duration(seconds)}")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
