"""SIGINT at a random moment of the demo: nothing is left running, and nothing in the store for ever.

FAULT_MOMENTS says how many moments are tried. FAULT_DEMO is the command, by default what `make demo` runs.
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import redis

from tests.fault.processes import eventually, with_environment
from tree_store.embedded import EmbeddedServer

MOMENTS = int(os.environ.get("FAULT_MOMENTS", "4"))
DEMO_SECONDS = 45.0  # about what the demo takes; a moment after its end is one, too
COMMAND: Sequence[str] = shlex.split(os.environ.get("FAULT_DEMO", "")) or (
    *(sys.executable, "-m", "thoughtbeam.cli.main", "demo"),
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_nothing_is_left_of_an_interrupted_demo(moment: int, tmp_path: Path) -> None:
    # one moment in each part of the demo, so that few of them still cover all of it
    seconds = (moment + random.random()) * DEMO_SECONDS / MOMENTS
    print(f"SIGINT after {seconds:.2f} s")
    home = tmp_path / "home"
    output = tmp_path / "output"
    with output.open("wb") as out:
        demo = subprocess.Popen(
            COMMAND,
            env={**os.environ, "THOUGHTBEAM_HOME": str(home)},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        time.sleep(seconds)
        os.killpg(demo.pid, signal.SIGINT)  # as Ctrl-C in a terminal does
        status = demo.wait(timeout=120)

    # make reports its recipe's death in its own way
    assert status in (0, 2, 130, -signal.SIGINT), output.read_text()
    eventually(
        lambda: not with_environment("THOUGHTBEAM_HOME", str(home)),
        f"{with_environment('THOUGHTBEAM_HOME', str(home))} end",
    )
    if (home / "store").exists():
        with EmbeddedServer(home / "store") as server, redis.Redis.from_url(server.url) as client:
            for key in client.scan_iter("tb:{*"):
                assert client.pttl(key) > 0, f"{key!r} would stay for ever"
