"""Starting vLLM as a pooling engine: everything blocking, in one thread beside the event loop."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.vllm_life import (
    VllmVersionError,
    built_in_thread,
    check_version,
    device_arguments,
    prepare_environment,
    reason_of,
    shut_down_llm,
    start_llm,
)
from thoughtbeam.runtime.weight_files import add_weight_files

log = EventLogger(__name__)

_ARCHITECTURE = "Qwen2ForProcessRewardModel"
_WEIGHTS = ("*.safetensors", "*.bin")


class EngineStartError(Exception):
    """An engine that cannot be started, and why, in one line."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What may be chosen of the engine.

    model: Hugging Face directory or name. dtype: of weights and activations, `auto` for the model's own.
    max_context: longest prompt in tokens, kv_blocks: size of the KV cache, chunk: most tokens in one pass of
    the engine (each 0: vLLM's own choice). gpu_memory: share of a GPU's memory, in (0, 1].
    """

    model: str
    dtype: str = "auto"
    max_context: int = 0
    gpu_memory: float = 0.9
    kv_blocks: int = 0
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class Launched:
    """A running vLLM. llm: its AsyncLLM. max_context: in tokens. blocks: of the KV cache, block_size: tokens
    of one. digest: 16 hexadecimal digits that tell the model from another."""

    llm: Any
    max_context: int
    blocks: int
    block_size: int
    digest: str

    def shut_down(self) -> None:
        """Ends vLLM and its processes. Blocks for some seconds."""
        shut_down_llm(self.llm)


async def launch(config: EngineConfig) -> Launched:
    """Starts vLLM. Raises EngineStartError; when cancelled, ends what was started."""
    began = time.monotonic()
    launched = await built_in_thread(lambda: _build(config), Launched.shut_down)
    log.info(
        "engine_started",
        model=config.model,
        max_context=launched.max_context,
        kv_blocks=launched.blocks,
        seconds=round(time.monotonic() - began, 1),
    )
    return launched


def _build(config: EngineConfig) -> Launched:
    prepare_environment()
    try:
        import vllm
    except ImportError as error:
        raise EngineStartError(f"vLLM, which process_reward needs, cannot be imported: {error}") from error
    from vllm.platforms import current_platform

    try:
        check_version(vllm.__version__)
        llm = start_llm(_vllm_config(config, on_cpu=current_platform.is_cpu()))
        try:
            return _described(llm, config)
        except BaseException:
            shut_down_llm(llm)
            raise
    except VllmVersionError as error:
        raise EngineStartError(str(error)) from None
    except EngineStartError:
        raise
    except Exception as error:  # whatever it is, such as a model directory that is being replaced
        raise EngineStartError(
            f"vLLM cannot start with model {config.model}, dtype {config.dtype}: {reason_of(error)}"
        ) from error


def _vllm_config(config: EngineConfig, *, on_cpu: bool) -> Any:
    from vllm.config import PoolerConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    from prm_worker.process_reward.vllm_scheduler import WatchedAsyncScheduler, WatchedScheduler

    arguments: dict[str, Any] = {
        "model": config.model,
        "dtype": config.dtype,
        "max_model_len": config.max_context or None,
        "num_gpu_blocks_override": config.kv_blocks or None,
        "max_num_batched_tokens": config.chunk or None,
        "runner": "pooling",
        # The values of all tokens, of which we take those at the separators. vLLM's own way for these models,
        # STEP, looks for separators in the whole prompt: the engine dies when a part of it was cached.
        "pooler_config": PoolerConfig(tok_pooling_type="ALL", use_activation=False),
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        **device_arguments(on_cpu=on_cpu, block_size=0, gpu_memory=config.gpu_memory),
    }
    made = AsyncEngineArgs(**arguments).create_engine_config()
    architectures = getattr(made.model_config.hf_config, "architectures", None) or ["unknown"]
    if _ARCHITECTURE not in architectures:
        raise EngineStartError(
            f"model {config.model} is of architecture {', '.join(architectures)}, must be {_ARCHITECTURE}"
        )
    scheduler = made.scheduler_config
    scheduler.scheduler_cls = WatchedAsyncScheduler if scheduler.async_scheduling else WatchedScheduler
    return made


def _described(llm: Any, config: EngineConfig) -> Launched:
    model, cache = llm.vllm_config.model_config, llm.vllm_config.cache_config
    # vLLM keeps one block for itself
    blocks, block_size = cache.num_gpu_blocks - 1, cache.block_size
    if blocks * block_size < model.max_model_len:
        raise EngineStartError(
            f"{blocks} KV blocks of {block_size} tokens cannot hold one trace of max_context "
            f"{model.max_model_len}: at most {blocks * block_size} is allowed"
        )
    return Launched(llm, model.max_model_len, blocks, block_size, _digest(config.model, model))


def _digest(name: str, model: Any) -> str:
    """Over the configuration, and the name, size, first and last MiB of every weight file."""
    digest = hashlib.sha256(model.hf_config.to_json_string().encode())
    directory = _directory(name, model.revision)
    add_weight_files(digest, sorted(file for pattern in _WEIGHTS for file in directory.glob(pattern)))
    return digest.hexdigest()[:16]


def _directory(name: str, revision: str | None) -> Path:
    if os.path.isdir(name):
        return Path(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, local_files_only=True))
