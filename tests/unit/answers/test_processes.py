"""Killable processes: what hangs is killed, what they load is little, and none of them is left behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from decoder_worker.answers import symbolic
from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.answers.processes import KillableProcesses, KilledError
from tests.unit.answers import chores


@pytest_asyncio.fixture(loop_scope="session")
async def processes() -> AsyncIterator[KillableProcesses]:
    pool = KillableProcesses(chores.nothing, workers=2, seconds=1.0)
    yield pool
    await pool.close()


async def test_what_runs_too_long_is_killed_and_the_next_goes_on(processes: KillableProcesses) -> None:
    first = await processes.run(chores.pid)
    with pytest.raises(KilledError):
        await processes.run(chores.sleep, 60)
    assert await processes.run(chores.pid) != os.getpid()
    assert first != os.getpid()


async def test_even_what_does_not_listen_to_signals(processes: KillableProcesses) -> None:
    with pytest.raises(KilledError):
        await processes.run(chores.one_long_instruction)
    assert await processes.run(chores.pid)


async def test_waiting_for_a_process_does_not_count(processes: KillableProcesses) -> None:
    assert await asyncio.gather(*(processes.run(chores.sleep, 0.4) for _ in range(8))) == [None] * 8


async def test_memory_is_bounded(processes: KillableProcesses) -> None:
    with pytest.raises(KilledError):
        await processes.run(chores.eat_memory)


async def test_exceptions_come_back(processes: KillableProcesses) -> None:
    with pytest.raises(ZeroDivisionError):
        await processes.run(chores.divide, 1, by=0)


async def test_a_process_killed_from_outside_is_replaced(processes: KillableProcesses) -> None:
    with pytest.raises(KilledError):
        await processes.run(chores.die)
    os.kill(await processes.run(chores.pid), signal.SIGKILL)
    for _ in range(3):
        try:
            assert await processes.run(chores.pid)
            return
        except KilledError:
            await asyncio.sleep(0.3)
    pytest.fail("no process came back")


async def test_a_cancelled_task_gives_its_process_back() -> None:
    pool = KillableProcesses(chores.nothing, workers=1, seconds=60.0)
    await pool.run(chores.pid)
    task = asyncio.create_task(pool.run(chores.sleep, 60))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(20):
        assert await pool.run(chores.pid)
    await pool.close()


async def test_closing_leaves_no_process(processes: KillableProcesses) -> None:
    running = {await processes.run(chores.pid) for _ in range(5)}
    await processes.close()
    assert not [pid for pid in running if alive(pid)]
    await processes.close()


async def test_a_comparison_process_loads_little() -> None:
    pool = KillableProcesses(symbolic.warm_up, workers=1, seconds=30.0)
    loaded = await pool.run(chores.modules)
    await pool.close()
    assert "math_verify" in loaded
    assert not loaded & {"torch", "vllm", "transformers", "numpy", "grpc", "redis", "thoughtbeam"}
    assert "math_verify" not in sys.modules


async def test_a_clients_pattern_cannot_hang(equivalence: Equivalence) -> None:
    text = "hm</think>" + "a" * 40 + "!"
    assert await equivalence.extract(text, "regex", finish="stop", regex="(a+)+$") is None
    assert await equivalence.extract(text, "regex", finish="stop", regex="(a+)!") == "a" * 40
    assert await equivalence.extract("</think>\\boxed{7}", "boxed", finish="stop") == "7"
    with pytest.raises(re.error):
        await equivalence.extract(text, "regex", finish="stop", regex="(")


def test_processes_die_with_their_parent(tmp_path: Path) -> None:
    """Also when it is killed in the middle of a comparison that would run for ever."""
    package = tmp_path / "orphans"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(
        textwrap.dedent(
            """
            import asyncio
            from decoder_worker.answers.processes import KillableProcesses
            from tests.unit.answers import chores

            async def main():
                pool = KillableProcesses(chores.nothing, workers=1, seconds=600.0)
                print(await pool.run(chores.pid), flush=True)
                await pool.run(chores.one_long_instruction)

            asyncio.run(main())
            """
        )
    )
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-m", "orphans"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
        parent.kill()
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid: int) -> bool:
    """Whether the process runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
