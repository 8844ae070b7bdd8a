"""Starting vLLM: everything blocking, in one thread beside the event loop."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decoder_worker.engine.base import EngineError, EngineInfo, SamplingSpec
from decoder_worker.engine.boundaries import Vocabulary
from decoder_worker.engine.checks import check_capacity, check_model
from decoder_worker.engine.fingerprint import model_fingerprint
from decoder_worker.engine.tokenizer import HuggingFaceTokenizer
from decoder_worker.engine.vllm_config import (
    VllmConfig,
    check_version,
    engine_arguments,
    refuse_unsupported,
)
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.vllm_life import (
    built_in_thread,
    prepare_environment,
    reason_of,
    shut_down_llm,
    start_llm,
)

log = EventLogger(__name__)


@dataclass(frozen=True, slots=True)
class Launched:
    """A running vLLM. llm: its AsyncLLM."""

    llm: Any
    info: EngineInfo
    tokenizer: HuggingFaceTokenizer
    vocabulary: Vocabulary

    def shut_down(self) -> None:
        """Ends vLLM and its processes. Blocks for some seconds."""
        shut_down_llm(self.llm)


async def launch(config: VllmConfig) -> Launched:
    """Starts vLLM. Raises a fatal EngineError when it cannot be started; when cancelled, ends what was
    started."""
    began = time.monotonic()
    launched = await built_in_thread(lambda: _build(config), Launched.shut_down)
    log.info(
        "engine_started",
        model=launched.info.model,
        version=launched.info.version,
        kv_blocks=launched.info.kv_blocks,
        seconds=round(time.monotonic() - began, 1),
    )
    return launched


def _build(config: VllmConfig) -> Launched:
    check_model(config.model)
    prepare_environment()
    try:
        import vllm
    except ImportError as error:
        raise EngineError(f"vLLM cannot be imported: {error}", fatal=True) from error
    from vllm.platforms import current_platform

    check_version(vllm.__version__)
    arguments = engine_arguments(config, on_cpu=current_platform.is_cpu())
    tokenizer = HuggingFaceTokenizer.load(config.model)
    try:
        vllm_config = _vllm_config(arguments)
        refuse_unsupported(vllm_config)
        size = vllm_config.model_config.get_vocab_size()
        vocabulary = Vocabulary(config.boundary_rule, tokenizer.token_texts(size), tokenizer.transparent)
        llm = start_llm(vllm_config)
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(
            f"vLLM cannot start with model {config.model}, dtype {config.dtype}: {reason_of(error)}",
            fatal=True,
        ) from error
    try:
        info = _describe(config, llm.vllm_config, vllm.__version__)
        check_capacity(info)
    except BaseException:
        shut_down_llm(llm)
        raise
    return Launched(llm, info, tokenizer, vocabulary)


def _vllm_config(arguments: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    from decoder_worker.engine.vllm_scheduler import HandoverAsyncScheduler, HandoverScheduler

    vllm_config = AsyncEngineArgs(**arguments).create_engine_config()
    scheduler = vllm_config.scheduler_config
    scheduler.scheduler_cls = HandoverAsyncScheduler if scheduler.async_scheduling else HandoverScheduler
    return vllm_config


def _describe(config: VllmConfig, vllm_config: Any, version: str) -> EngineInfo:
    model, cache = vllm_config.model_config, vllm_config.cache_config
    return EngineInfo(
        model=config.served_name or config.model,
        fingerprint=_fingerprint(config, model.revision),
        version=f"vllm {version}",
        boundary_rule=config.boundary_rule,
        hidden_size=model.get_hidden_size(),
        max_context=model.max_model_len,
        slots=vllm_config.scheduler_config.max_num_seqs,
        block_size=cache.block_size,
        # vLLM keeps one block for itself
        kv_blocks=cache.num_gpu_blocks - 1,
        default_sampling=_default_sampling(model),
    )


def _fingerprint(config: VllmConfig, revision: str | None) -> str:
    if config.options.get("load_format") == "dummy":
        return "dummy"
    if Path(config.model).is_dir():
        return model_fingerprint(config.model)
    from huggingface_hub import snapshot_download

    return model_fingerprint(snapshot_download(config.model, revision=revision, local_files_only=True))


def _default_sampling(model: Any) -> SamplingSpec:
    """The model's generation_config, as far as SamplingSpec has it."""
    given = model.get_diff_sampling_param()
    neutral = SamplingSpec()
    return SamplingSpec(
        temperature=given.get("temperature", neutral.temperature),
        top_p=given.get("top_p", neutral.top_p),
        top_k=given.get("top_k", neutral.top_k),
        max_tokens=min(given.get("max_tokens", neutral.max_tokens), model.max_model_len - 1),
    )
