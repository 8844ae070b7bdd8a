"""What test_processes runs in other processes; imports next to nothing."""

from __future__ import annotations

import os
import sys
import time


def nothing() -> None:
    pass


def pid() -> int:
    return os.getpid()


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def one_long_instruction() -> None:
    """A single power that takes minutes: no signal handler written in Python runs meanwhile."""
    _ = 7 ** (10**9)


def eat_memory() -> int:
    return len(bytearray(4 * 1024**3))


def divide(number: float, *, by: float) -> float:
    return number / by


def die() -> None:
    os._exit(3)


def modules() -> set[str]:
    """Top-level packages that are loaded."""
    return {name.partition(".")[0] for name in sys.modules}
