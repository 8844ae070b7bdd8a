"""How vLLM is set up for us: the options we choose, the versions we accept, the settings we refuse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from decoder_worker.engine.base import EngineError
from decoder_worker.engine.boundaries import BLANK_LINE
from thoughtbeam.runtime import vllm_life

_OVERRIDABLE = frozenset({"enforce_eager", "kv_cache_memory_bytes", "distributed_executor_backend"})
_DTYPES = ("auto", "float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class VllmConfig:
    """What a decoder worker may choose of its engine.

    model: Hugging Face directory or name. served_name: what EngineInfo calls it (default: `model`). dtype:
    of weights and activations, `auto` for the model's own. slots: traces decoded at once. max_context:
    longest sequence in tokens, kv_blocks: size of the KV cache, block_size: tokens of a KV block (each 0:
    vLLM's own choice). gpu_memory: share of a GPU's memory, in (0, 1]. options: further arguments of vLLM's
    AsyncEngineArgs.
    """

    model: str
    served_name: str = ""
    dtype: str = "auto"
    slots: int = 64
    max_context: int = 0
    kv_blocks: int = 0
    block_size: int = 0
    boundary_rule: str = BLANK_LINE
    gpu_memory: float = 0.9
    tensor_parallel: int = 1
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


def check_version(version: str) -> None:
    """Warns about releases between the tested ones, refuses others.

    Raises EngineError when `version` (as vLLM reports it) lies outside the accepted range.
    """
    try:
        vllm_life.check_version(version)
    except vllm_life.VllmVersionError as error:
        raise EngineError(str(error), fatal=True) from None


def engine_arguments(config: VllmConfig, *, on_cpu: bool) -> dict[str, Any]:
    """Arguments for vLLM's AsyncEngineArgs. Raises EngineError naming an option and what it may be."""
    _check(config)
    arguments: dict[str, Any] = {
        "model": config.model,
        "dtype": config.dtype,
        "max_num_seqs": config.slots,
        "max_model_len": config.max_context or None,
        "num_gpu_blocks_override": config.kv_blocks or None,
        "tensor_parallel_size": config.tensor_parallel,
        "seed": config.seed,
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",
        "worker_extension_cls": "decoder_worker.engine.vllm_hooks.CaptureExtension",
        **vllm_life.device_arguments(
            on_cpu=on_cpu,
            block_size=config.block_size,
            gpu_memory=config.gpu_memory,
            tensor_parallel=config.tensor_parallel,
        ),
    }
    taken = sorted(arguments.keys() & config.options.keys() - _OVERRIDABLE)
    if taken:
        raise EngineError(f"options: {', '.join(taken)} cannot be set here", fatal=True)
    return {**arguments, **config.options}


def _check(config: VllmConfig) -> None:
    limits = {
        "slots": (config.slots, 1),
        "max_context": (config.max_context, 0),
        "kv_blocks": (config.kv_blocks, 0),
        "block_size": (config.block_size, 0),
        "tensor_parallel": (config.tensor_parallel, 1),
    }
    for name, (value, least) in limits.items():
        if value < least:
            raise EngineError(f"{name} is {value}, must be at least {least}", fatal=True)
    if not 0 < config.gpu_memory <= 1:
        raise EngineError(f"gpu_memory is {config.gpu_memory}, must be in (0, 1]", fatal=True)
    if config.dtype not in _DTYPES:
        raise EngineError(f"dtype is {config.dtype!r}, must be one of {', '.join(_DTYPES)}", fatal=True)


def refuse_unsupported(vllm_config: Any) -> None:
    """Refuses settings of vLLM under which rows would not match requests or traces would not share blocks.

    vllm_config: vLLM's own, complete. Raises EngineError naming the setting.
    """
    parallel = vllm_config.parallel_config
    refused = {
        "speculative decoding": vllm_config.speculative_config is not None,
        "batch-sharded sampling": getattr(parallel, "enable_batch_sharded_sampling", False),
        "data parallelism (start one decoder worker per replica)": parallel.data_parallel_size > 1,
        "pipeline parallelism": parallel.pipeline_parallel_size > 1,
        "KV transfer": vllm_config.kv_transfer_config is not None,
        "a pooling model": vllm_config.model_config.runner_type != "generate",
        "an encoder-decoder model": vllm_config.model_config.is_encoder_decoder,
        "running without prefix caching": not vllm_config.cache_config.enable_prefix_caching,
    }
    found = [name for name, present in refused.items() if present]
    if found:
        raise EngineError(f"not supported: {', '.join(found)}", fatal=True)
