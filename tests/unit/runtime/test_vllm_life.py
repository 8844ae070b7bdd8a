"""What an engine on a CPU inherits from the process that starts it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from thoughtbeam.runtime import vllm_life

BOUND = {"OMP_NUM_THREADS": "1", "OMP_PLACES": "{1}", "OMP_PROC_BIND": "true"}
SEVERAL = {**BOUND, "OMP_NUM_THREADS": "3", "OMP_PLACES": "{1,2,3}"}
IN_CORE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"


def inherited(
    monkeypatch: pytest.MonkeyPatch,
    chosen: Mapping[str, str],
    *,
    auto: bool = True,
    device: str = "cpu",
    executor: str = IN_CORE,
) -> dict[str, str]:
    """OpenMP's settings at the start of an engine. chosen: by vLLM for its workers. auto: not by the user."""

    class Manager:
        auto_setup = auto

        def __init__(self, config: Any) -> None:
            assert device == "cpu", "vLLM knows of threads on CPUs only"

        @contextlib.contextmanager
        def configure_omp_envs(self, rank: int, local_rank: int) -> Iterator[None]:
            """As vLLM's: what was there before comes back."""
            with pytest.MonkeyPatch.context() as patch:
                for name, value in chosen.items():
                    patch.setenv(name, value)
                yield

    module = ModuleType("vllm.utils.ompmultiprocessing")
    module.OMPProcessManager = Manager  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    found: dict[str, str] = {}

    class AsyncLLM:
        @staticmethod
        def from_vllm_config(*_: Any, **__: Any) -> None:
            found.update({name: value for name, value in os.environ.items() if "OMP_" in name})

    llm = ModuleType("vllm.v1.engine.async_llm")
    llm.AsyncLLM = AsyncLLM  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, llm.__name__, llm)

    before = dict(os.environ)
    vllm_life.start_llm(
        SimpleNamespace(
            device_config=SimpleNamespace(device_type=device),
            parallel_config=SimpleNamespace(distributed_executor_backend=executor),
        )
    )
    assert dict(os.environ) == before
    return found


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if "OMP_" in name]:
        monkeypatch.delenv(name)


def test_one_thread_is_bound_to_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inherited(monkeypatch, BOUND) == {"OMP_NUM_THREADS": "1"}


def test_several_threads_are_bound_as_vllm_binds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inherited(monkeypatch, SEVERAL) == SEVERAL


def test_what_the_user_says_of_cores_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert inherited(monkeypatch, BOUND, auto=False) == BOUND
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert inherited(monkeypatch, BOUND) == {"OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "close"}


@pytest.mark.parametrize("change", [{"device": "cuda"}, {"executor": "mp"}])
def test_engines_with_processes_of_their_own_see_to_it_themselves(
    monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    assert inherited(monkeypatch, BOUND, **change) == {}  # type: ignore[arg-type]
