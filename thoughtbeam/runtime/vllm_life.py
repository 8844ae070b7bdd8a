"""Starting and ending vLLM, in every program that has an engine of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from thoughtbeam.runtime.parent_watch import starting_engine

T = TypeVar("T")

_FIRST, _LAST, _END = (0, 25, 1), (0, 32, 0), (0, 33)  # the tested ones, and the first that is refused

_ENVIRONMENT = {
    # Our process may hold threads (gRPC) that a forked child would not have.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    # Outputs of one step come in one piece, so that a step is one batch.
    "VLLM_V1_OUTPUT_PROC_CHUNK_SIZE": "65536",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
_CPU_BLOCK_SIZE = 32  # vLLM's smallest on CPU: little is computed again, short branches share finely
_CPU_KV_BYTES = 1 << 30
# On a CPU vLLM would run the model in a process beside the engine core, each polling for the other: on two
# cores that costs a quarter of the speed, and starves all other processes for seconds.
_IN_ENGINE_CORE = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_BINDING = ("OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")  # of threads to cores
_REASON_LENGTH = 500  # characters of vLLM's own message in ours
_LAST_SOCKETS = 1.0  # seconds for them to be closed
_TIDY_UP = 4.0  # seconds that an engine core has for it
_ABANDON_POLL = 0.1  # seconds between two looks for processes of an abandoned start


class VllmVersionError(Exception):
    """A release of vLLM that is not supported."""


def prepare_environment() -> None:
    """Sets the environment variables that vLLM reads, where the user has not. Before vLLM is imported."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def check_version(version: str) -> None:
    """Warns about releases between the tested ones.

    Raises VllmVersionError when `version` (as vLLM reports it) lies outside the accepted range.
    """
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", version)
    number = tuple(int(part or 0) for part in match.groups()) if match else (0,)
    if not _FIRST <= number < _END:
        raise VllmVersionError(f"vLLM {version} is not supported: 0.25.1 up to, but not including, 0.33 is")
    if number not in (_FIRST, _LAST):
        warnings.warn(f"vLLM {version} is not one of the tested releases, 0.25.1 and 0.32.0", stacklevel=3)


def device_arguments(
    *, on_cpu: bool, block_size: int, gpu_memory: float, tensor_parallel: int = 1
) -> dict[str, Any]:
    """Those of vLLM's AsyncEngineArgs that hang on the device. block_size: tokens of a KV block; 0: the best
    on a CPU, vLLM's own choice on a GPU. gpu_memory: share of a GPU's memory, in (0, 1]. tensor_parallel:
    devices that share the model."""
    if not on_cpu:
        chosen = {"block_size": block_size} if block_size else {}
        return {"gpu_memory_utilization": gpu_memory, **chosen}
    kv = {} if "VLLM_CPU_KVCACHE_SPACE" in os.environ else {"kv_cache_memory_bytes": _CPU_KV_BYTES}
    executor = {"distributed_executor_backend": _IN_ENGINE_CORE} if tensor_parallel == 1 else {}
    return {"enforce_eager": True, "block_size": block_size or _CPU_BLOCK_SIZE, **kv, **executor}


def reason_of(error: Exception) -> str:
    """What vLLM says of a failed start, in one line that is not too long."""
    return " ".join(str(error).split())[:_REASON_LENGTH] or type(error).__name__


async def built_in_thread(build: Callable[[], T], shut_down: Callable[[T], None]) -> T:
    """What `build`, which blocks, makes of an engine and its processes; raises what it raises. When this is
    cancelled, what was made or is being made is ended, with `shut_down` where it came to be."""
    before = set(multiprocessing.active_children())
    building = asyncio.get_running_loop().run_in_executor(None, build)
    try:
        return await asyncio.shield(building)
    except asyncio.CancelledError:
        await _abandon(building, before, shut_down)
        raise


async def _abandon(building: asyncio.Future[T], before: set[Any], shut_down: Callable[[T], None]) -> None:
    """Kills the engine processes that a start has made or still makes, until its thread gives up."""
    while not building.done():
        for child in set(multiprocessing.active_children()) - before:
            child.kill()
        await asyncio.wait([building], timeout=_ABANDON_POLL)
    if building.exception() is None:
        await asyncio.to_thread(shut_down, building.result())


def start_llm(vllm_config: Any) -> Any:
    """An AsyncLLM. vllm_config: vLLM's own, complete. Blocks until the model is loaded."""
    from vllm.v1.engine.async_llm import AsyncLLM

    # Ctrl-C in a terminal goes to every process of the group. When the engine stops is for us to say, so its
    # processes inherit a mask that keeps SIGINT from them.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with starting_engine(), _threads_of_the_model(vllm_config):
            return AsyncLLM.from_vllm_config(vllm_config, disable_log_stats=True)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _threads_of_the_model(vllm_config: Any) -> Iterator[None]:
    """Around the start of an engine core that runs the model itself, on a CPU: it inherits the OpenMP
    settings that vLLM gives to processes of its own. One thread alone is bound to no core, unless the user
    says so (VLLM_CPU_OMP_THREADS_BIND): it runs where there is room."""
    executor = vllm_config.parallel_config.distributed_executor_backend
    if vllm_config.device_config.device_type != "cpu" or executor != _IN_ENGINE_CORE:
        yield
        return
    from vllm.utils.ompmultiprocessing import OMPProcessManager

    manager = OMPProcessManager(vllm_config)
    own = {name: os.environ.get(name) for name in _BINDING}
    with manager.configure_omp_envs(rank=0, local_rank=0):
        if manager.auto_setup and os.environ["OMP_NUM_THREADS"] == "1":
            for name, value in own.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        yield


def shut_down_llm(llm: Any) -> None:
    """Ends an AsyncLLM and its processes. Blocks for some seconds."""
    # An engine core has given back what outlives it after about three seconds and then tidies up memory that
    # its end frees anyway. So it is killed, and vLLM need not warn about that.
    resources = llm.engine_core.resources
    processes = list(resources.engine_manager.processes)
    logger = logging.getLogger("vllm.v1.utils")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        llm.shutdown(timeout=_TIDY_UP)
    finally:
        logger.setLevel(level)
    for process in processes:
        process.join()
    # vLLM leaves its message context to the garbage collector, which complains. Closing it waits for sockets
    # that are closed elsewhere, so it is given a moment only.
    closing = threading.Thread(target=resources.ctx.term, name="vllm context", daemon=True)
    closing.start()
    closing.join(_LAST_SOCKETS)
    # its __del__ would do it again, possibly when Python is ending and nothing can be called any more
    llm.shutdown = _nothing


def _nothing() -> None:
    """In the place of what has been done."""
