"""What runs on this machine, as /proc tells it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = 120.0  # seconds; for what takes a few


def with_environment(name: str, value: str) -> dict[int, str]:
    """Processes that were started with this variable: their commands by process id."""
    wanted = f"{name}={value}".encode()
    found = {}
    for directory in Path("/proc").iterdir():
        # processes come and go while we look; zombies have no environment
        with contextlib.suppress(OSError, ValueError):
            if wanted in (directory / "environ").read_bytes().split(b"\0"):
                found[int(directory.name)] = command(int(directory.name))[0]
    found.pop(os.getpid(), None)
    return found


def command(pid: int) -> list[str]:
    """A process's program and arguments."""
    return (Path("/proc") / str(pid) / "cmdline").read_bytes().decode().rstrip("\0").split("\0")


def children(pid: int) -> list[int]:
    """Process ids of all that descend from a process."""
    parents: dict[int, int] = {}
    for directory in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            # the name in parentheses may hold anything
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
            parents[int(directory.name)] = int(fields[1])
    found = [pid]
    for candidate in found:
        found += [child for child, parent in parents.items() if parent == candidate]
    return found[1:]


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def eventually(true: Callable[[], object], what: str) -> None:
    """Waits for something that is going to be true."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.05)
