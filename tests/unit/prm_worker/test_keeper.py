"""An engine that dies is started again, later and later when it does not start."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from prm_worker.process_reward.engine import EngineDiedError, PoolingEngine
from prm_worker.process_reward.keeper import EngineKeeper
from prm_worker.process_reward.launch import EngineConfig, EngineStartError, Launched


class Mortal:
    """In the place of a PoolingEngine: it dies when told to."""

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self.closed = False

    async def close(self) -> None:
        self.closed = True


class Starts:
    """Starts engines; those whose number is in `failing` do not start. at: when each was asked for."""

    def __init__(self, *failing: int) -> None:
        self.at: list[float] = []
        self.engines: list[Mortal] = []
        self.told: list[bool] = []
        self._failing = failing

    async def __call__(self) -> Any:
        self.at.append(asyncio.get_running_loop().time())
        if len(self.at) in self._failing:
            raise EngineStartError("no memory")
        self.engines.append(Mortal())
        return self.engines[-1]

    async def tell(self, serving: bool) -> None:
        self.told.append(serving)


@asynccontextmanager
async def kept(starts: Starts) -> AsyncIterator[EngineKeeper]:
    keeper = EngineKeeper(starts, first_delay=0.02)
    await keeper.open()
    running = asyncio.create_task(keeper.run(starts.tell))
    try:
        yield keeper
    finally:
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


async def until_serving(starts: Starts, times: int) -> None:
    async with asyncio.timeout(10):
        while starts.told.count(True) < times:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.005)


async def test_an_engine_that_dies_is_closed_and_replaced() -> None:
    starts = Starts()
    async with kept(starts) as keeper:
        assert keeper.engine is starts.engines[0]
        starts.engines[0].died.set()
        with pytest.raises(EngineDiedError):
            _ = keeper.engine
        await until_serving(starts, 1)
        assert keeper.engine is starts.engines[1]
        assert keeper.restarts == 1
    assert starts.told == [False, True]
    assert [engine.closed for engine in starts.engines] == [True, True]


async def test_it_tries_until_one_starts_and_waits_longer_each_time() -> None:
    starts = Starts(2, 3, 4)
    async with kept(starts) as keeper:
        starts.engines[0].died.set()
        await until_serving(starts, 1)
        assert keeper.restarts == 1
    pauses = [after - before for before, after in zip(starts.at[1:], starts.at[2:], strict=False)]
    assert len(pauses) == 3
    assert all(pause >= 0.02 * 2**number for number, pause in enumerate(pauses, 1))
    assert starts.told == [False, True]


async def test_it_can_be_stopped_while_there_is_no_engine() -> None:
    starts = Starts(*range(2, 100))
    async with kept(starts) as keeper:
        starts.engines[0].died.set()
        async with asyncio.timeout(10):
            while len(starts.at) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        with pytest.raises(EngineDiedError):
            _ = keeper.engine
    assert starts.told == [False]


async def test_the_first_engine_has_to_start() -> None:
    with pytest.raises(EngineStartError):
        await EngineKeeper(Starts(1)).open()


class _Dying(PoolingEngine):
    """Dies of its first prompt."""

    async def _check(self, config: EngineConfig) -> None:
        raise EngineDiedError


class _Llm:
    """In the place of vLLM's AsyncLLM, so that there is something to watch."""

    def _run_output_handler(self) -> None:
        self.output_handler = asyncio.ensure_future(asyncio.sleep(0))


async def test_whatever_fails_once_vllm_has_started_the_engine_has_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So the keeper tries again: any other error would end the prm worker. The model's directory may be one
    that is being replaced."""
    ended: list[_Llm] = []
    llm = _Llm()

    def described(llm: _Llm, config: EngineConfig) -> Launched:
        raise FileNotFoundError("model-00001-of-00004.safetensors")

    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(__version__="0.32.0"))
    platform = SimpleNamespace(is_cpu=lambda: True)
    monkeypatch.setitem(sys.modules, "vllm.platforms", SimpleNamespace(current_platform=platform))
    for name, value in {
        "prepare_environment": lambda: None,
        "_vllm_config": lambda config, on_cpu: None,
        "start_llm": lambda vllm_config: llm,
        "_described": described,
        "shut_down_llm": ended.append,
    }.items():
        monkeypatch.setattr(f"prm_worker.process_reward.launch.{name}", value)
    with pytest.raises(EngineStartError, match="with model m, dtype auto: model-00001-of-00004"):
        await PoolingEngine.start(EngineConfig("m"))
    assert ended == [llm]


class _Silly(PoolingEngine):
    """Starts, and cannot compute its first prompt."""

    async def _check(self, config: EngineConfig) -> None:
        raise ValueError("no such task")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (_Dying, "the engine of model m died as it started"),
        (_Silly, "the engine of model m cannot score: no such task"),
    ],
)
async def test_an_engine_that_cannot_compute_a_prompt_has_not_started(
    engine: type[PoolingEngine], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[_Llm] = []

    async def launched(config: EngineConfig) -> Launched:
        return Launched(_Llm(), 64, 8, 8, "digest")

    monkeypatch.setattr("prm_worker.process_reward.engine.launch", launched)
    monkeypatch.setattr("prm_worker.process_reward.launch.shut_down_llm", ended.append)
    with pytest.raises(EngineStartError, match=said):
        await engine.start(EngineConfig("m"))
    assert len(ended) == 1
