"""Kills process groups when the process at the other end of stdin is gone: `python -I -S warden.py`

A child dies with its parent by itself (child.py), but its own children do not know of that. This process
outlives the parent by the moment that it takes to kill their groups. stdin: lines `+GROUP` and `-GROUP`.
"""

import contextlib
import os
import signal
import sys

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
