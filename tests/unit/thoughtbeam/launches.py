"""A small launcher for the tests, run as a program: `python launches.py DIRECTORY MARK CHILDREN`

Its children are small Python programs that carry MARK on their command line, so that a test can find what
is left of them. CHILDREN is a JSON list of their sources. It prints a line at each step and runs until it
is stopped.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from thoughtbeam.supervision.signals import StopRequestedError, StopSignals
from thoughtbeam.supervision.supervisor import Service, Supervisor

SLEEPER = "import time; time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {SLEEPER!r}, sys.argv[1]])"


def service(name: str, source: str, mark: str, grace: float = 5.0) -> Service:
    """A child that is healthy at once."""
    return Service(name, [sys.executable, "-S", "-c", source, mark], lambda: True, grace)


def alive(mark: str) -> list[int]:
    """Processes that carry the mark; zombies have no command line and do not count."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                # in the middle of an exec; a zombie, and a thread of the kernel, has no program
                while arguments == [b""] and os.readlink(entry / "exe"):
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in arguments:
                found.append(int(entry.name))
    return found


def gone(mark: str, within: float = 5.0) -> bool:
    """Whether nothing that carries the mark is left, after at most so many seconds."""
    deadline = time.monotonic() + within
    while alive(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def main(directory: Path, mark: str, sources: list[str]) -> None:
    with StopSignals() as signals:
        print("ready for signals", flush=True)
        supervisor = Supervisor(signals, directory, os.environ)
        try:
            for number, source in enumerate(sources):
                supervisor.start(service(f"child{number}", source, mark, grace=0.3))
                supervisor.wait_healthy(f"child{number}", 5.0)
            print("up", flush=True)
            while True:
                signals.wait(10.0)
        except StopRequestedError:
            print("stopping", flush=True)
        finally:
            supervisor.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "of:" + sys.argv[2], json.loads(sys.argv[3]))
