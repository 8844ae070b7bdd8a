"""Engines in processes of their own: asynchronous scheduling, and how engines end when others do."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from decoder_worker.engine.base import EngineError
from decoder_worker.engine.vllm_engine import VllmConfig, VllmEngine
from tests.integration.conftest import MODEL

pytestmark = pytest.mark.timeout(600)  # engines start slowly beside others

REPOSITORY = Path(__file__).parents[3]


async def script(name: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"tests.integration.engine.{name}",
        cwd=REPOSITORY,
        stdout=asyncio.subprocess.PIPE,
    )


async def until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits for something that happens in other processes."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.1)


async def test_asynchronous_scheduling_gives_the_same_rows_and_a_dead_engine_is_reported() -> None:
    process = await script("async_engine")
    output, _ = await process.communicate()
    assert process.returncode == 0
    result = json.loads(output.splitlines()[-1])
    assert result["asynchronous"]
    assert result["rows"] >= 60
    assert result["confidences"] == 11
    assert result["preemptions"] >= 3
    assert result["held"] == ["boundary", True]
    assert result["heard"] == [["the engine has died", True]] * 3
    assert result["seconds"] < 10


@pytest.mark.parametrize("moment", ["loading", "running"])
async def test_no_engine_process_outlives_its_killed_parent(moment: str) -> None:
    process = await script("lonely_engine")
    parent = psutil.Process(process.pid)
    try:
        if moment == "running":
            assert process.stdout is not None
            while (await process.stdout.readline()).strip() != b"up":
                assert process.returncode is None
        else:
            # the engine core is there and still imports vLLM; the other is multiprocessing's resource tracker
            await until(lambda: len(parent.children()) >= 2, 120)
        family = parent.children(recursive=True)
        assert len(family) >= 2
    finally:
        parent.kill()
    await until(lambda: not any(map(_alive, family)), 5)


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# vLLM leaves a ZeroMQ context behind when it is stopped amid its start
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_cancelled_start_leaves_no_process() -> None:
    before = set(multiprocessing.active_children())

    def started() -> set[psutil.Process]:
        new = set(multiprocessing.active_children()) - before
        return {psutil.Process(child.pid) for child in new}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        starting = asyncio.create_task(
            VllmEngine.start(VllmConfig(str(MODEL), slots=2, max_context=256, kv_blocks=9))
        )
        await until(lambda: bool(started()), 120)
        (core,) = started()
        began = time.monotonic()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    gc.collect()
    assert time.monotonic() - began < 120
    assert not _alive(core)
    assert not started()


@pytest.mark.filterwarnings("ignore")  # torch's and vLLM's own, at their first import
async def test_what_cannot_be_served_is_refused_before_anything_starts(tmp_path: Path) -> None:
    before = multiprocessing.active_children()
    with pytest.raises(EngineError, match="nowhere: there is no such directory"):
        await VllmEngine.start(VllmConfig(str(tmp_path / "nowhere")))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(EngineError, match=f"^model {tmp_path} has no usable tokenizer: [^\n]+$"):
        await VllmEngine.start(VllmConfig(str(tmp_path)))
    with pytest.raises(EngineError, match="1048576"):
        await VllmEngine.start(VllmConfig(str(MODEL), max_context=1 << 20))
    with pytest.raises(EngineError, match="not supported: speculative decoding"):
        await VllmEngine.start(
            VllmConfig(
                str(MODEL),
                options={"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
            )
        )
    assert multiprocessing.active_children() == before
