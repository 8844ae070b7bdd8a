"""Runs a command that the kernel kills when the parent dies: `python -I -S child.py PARENT_PID COMMAND...`

A program of its own, because the call must be made between fork and exec, where the parent's threads forbid
Python code; and a small one, because every child pays for its start.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # not undone by exec
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG): " + os.strerror(ctypes.get_errno()))
    # died before the call above: no signal will come
    if os.getppid() != parent:
        sys.exit("the parent has gone")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")
