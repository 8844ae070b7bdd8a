"""No process of an engine outlives the process that started it, however that one ends.

A worker that was killed with SIGKILL cannot stop its engine, and vLLM's engine core would wait for
work for ever. PR_SET_PDEATHSIG would not help: it watches the parent's thread, and engines are started from
a thread that ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

_STARTER = "THOUGHTBEAM_ENGINE_STARTED_BY"  # process id, inherited by the processes it starts
_POLL_SECONDS = 0.5


@contextlib.contextmanager
def starting_engine() -> Iterator[None]:
    """In the process that starts an engine, around that: processes started meanwhile belong to the engine."""
    os.environ[_STARTER] = str(os.getpid())
    try:
        yield
    finally:
        del os.environ[_STARTER]


def die_with_starter() -> None:
    """In a process of an engine, as early as possible: kills it when its starter is no longer its parent.

    Does nothing in other processes, and nothing more when called again.
    """
    starter = int(os.environ.get(_STARTER, os.getpid()))
    if starter == os.getpid():
        return
    os.environ[_STARTER] = str(os.getpid())  # for the processes that this one starts

    def watch() -> None:
        while os.getppid() == starter:
            time.sleep(_POLL_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="thoughtbeam-parent-watch", daemon=True).start()
