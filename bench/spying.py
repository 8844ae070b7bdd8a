"""Where processes spend their time, by py-spy, which a closer look needs and nothing else."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

_OURS = ("(decoder_worker/", "(tree_store/", "(thoughtbeam/")
_WORKERS = re.compile(r"\((?:decoder_worker|tree_store|thoughtbeam|vllm|torch|zmq|grpc|bench)/")
# py-spy does not see of every thread that it sleeps
_SLEEPS = re.compile(r"^(die_with_starter.*watch|Condition\.wait|_worker|\w*Selector\.select|Poller\.poll) ")
_FUNCTIONS = 12  # shown of each process
# of a file's path, what lies before its package
_PACKAGES = re.compile(r"^.*?(?:site-packages/|(?=(?:decoder_worker|tree_store|thoughtbeam|bench)/))")


def available() -> bool:
    """Whether there is a py-spy."""
    return shutil.which("py-spy") is not None


async def spied(work: Callable[[], Awaitable[object]], seconds: int) -> list[list[str]]:
    """Does the work again and again while this process and its children are looked at.

    Rows of (process, function, share of the process' busy time in it itself, share with all that it calls),
    most time first; and what of each process is our own code, the standard library below it included.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "stacks"
        command = ["py-spy", "record", "--pid", str(os.getpid()), "--subprocesses", "--format", "raw"]
        command += ["--duration", str(seconds), "--output", str(output)]
        spy = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        ended = asyncio.create_task(spy.wait())
        while not ended.done():
            await work()
        if await ended:
            raise RuntimeError("py-spy could not look at this process; may it trace others here?")
        return shares(output.read_text())


def shares(stacks: str) -> list[list[str]]:
    """The rows of `spied` from stacks in py-spy's raw format: frames joined by semicolons, and a count."""
    total: Counter[str] = Counter()
    itself: Counter[tuple[str, str]] = Counter()
    within: Counter[tuple[str, str]] = Counter()
    ours: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [_short(frame) for frame in stack.split(";")]
        process = next((f for f in reversed(frames) if f.startswith("process ")), "process")
        frames = [frame for frame in frames if not frame.startswith(("process ", "thread "))]
        if not frames or _SLEEPS.match(frames[-1]):
            continue
        samples = int(count)
        total[process] += samples
        itself[process, frames[-1]] += samples
        for frame in set(frames):
            within[process, frame] += samples
        # the standard library works for whoever called it
        worker = next((found[0] for frame in reversed(frames) if (found := _WORKERS.search(frame))), "")
        if worker in _OURS:
            ours[process] += samples
    rows = []
    for process, samples in total.most_common():
        own = [(frame, n) for (where, frame), n in itself.most_common() if where == process]
        for frame, n in own[:_FUNCTIONS]:
            rows.append([process, frame, f"{n / samples:.1%}", f"{within[process, frame] / samples:.1%}"])
        rows.append([process, "all of Thoughtbeam's own code", f"{ours[process] / samples:.1%}", ""])
    return rows


def _short(frame: str) -> str:
    """Without the line, and without what tells one run from another."""
    if frame.startswith("process "):
        kind = re.search(r"(EngineCore|Worker|resource_tracker|bench\.\w+)", frame)
        return "process " + (kind[1] if kind else "python")
    name, _, place = re.sub(r":\d+\)$", ")", frame).partition(" (")
    return f"{name} ({_PACKAGES.sub('', place)}" if place else frame
