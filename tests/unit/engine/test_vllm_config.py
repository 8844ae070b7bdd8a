"""Which vLLM is accepted, and with which settings."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from decoder_worker.engine.base import EngineError
from decoder_worker.engine.vllm_config import (
    VllmConfig,
    check_version,
    engine_arguments,
    refuse_unsupported,
)


@pytest.mark.parametrize("version", ["0.25.1", "0.32.0", "0.32.0+cpu"])
def test_tested_releases_pass(version: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_version(version)


@pytest.mark.parametrize("version", ["0.25.2", "0.26.0", "0.32.1", "0.28.0rc1"])
def test_releases_between_are_warned_of(version: str) -> None:
    with pytest.warns(UserWarning, match=f"vLLM {version} is not one of the tested"):
        check_version(version)


@pytest.mark.parametrize("version", ["0.25.0", "0.24.9", "0.33.0", "1.0.0", "dev"])
def test_others_are_refused_by_name(version: str) -> None:
    with pytest.raises(EngineError, match=f"vLLM {version} is not supported") as refused:
        check_version(version)
    assert refused.value.fatal


def test_arguments_on_cpu_and_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    config = VllmConfig("m", slots=3, options={"load_format": "dummy"})
    cpu, gpu = engine_arguments(config, on_cpu=True), engine_arguments(config, on_cpu=False)
    for arguments in (cpu, gpu):
        assert arguments["max_num_seqs"] == 3
        assert arguments["scheduling_policy"] == "priority"
        assert arguments["enable_prefix_caching"]
        assert arguments["load_format"] == "dummy"
        assert arguments["max_model_len"] is None
    assert cpu["enforce_eager"]
    assert cpu["block_size"] == 32
    assert cpu["kv_cache_memory_bytes"] == 1 << 30
    assert "enforce_eager" not in gpu
    assert "distributed_executor_backend" not in gpu
    assert gpu["gpu_memory_utilization"] == 0.9


def test_on_a_cpu_one_process_schedules_and_runs_the_model_unless_several_share_it() -> None:
    def executor(**change: Any) -> str | None:
        return engine_arguments(VllmConfig("m", **change), on_cpu=True).get("distributed_executor_backend")

    alone = executor()
    assert alone is not None
    assert alone.endswith("UniProcExecutor")
    assert executor(tensor_parallel=2) is None
    assert executor(options={"distributed_executor_backend": "mp"}) == "mp"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"slots": 0}, "slots is 0, must be at least 1"),
        ({"max_context": -1}, "max_context is -1, must be at least 0"),
        ({"gpu_memory": 1.5}, r"gpu_memory is 1.5, must be in \(0, 1\]"),
        ({"dtype": "float31"}, "dtype is 'float31', must be one of auto, float32"),
        ({"options": {"scheduling_policy": "fcfs"}}, "options: scheduling_policy cannot be set here"),
    ],
)
def test_bad_settings_are_refused_with_what_is_allowed(change: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        engine_arguments(VllmConfig("m", **change), on_cpu=True)


def vllm_config(**changes: Any) -> Any:
    """vLLM's configuration as far as it is looked at."""
    values: dict[str, Any] = {
        "speculative_config": None,
        "kv_transfer_config": None,
        "data_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "runner_type": "generate",
        "is_encoder_decoder": False,
        "enable_prefix_caching": True,
        **changes,
    }
    part = SimpleNamespace(**values)
    return SimpleNamespace(**values, parallel_config=part, model_config=part, cache_config=part)


def test_a_plain_configuration_is_accepted() -> None:
    refuse_unsupported(vllm_config())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"speculative_config": object()}, "speculative decoding"),
        ({"enable_batch_sharded_sampling": True}, "batch-sharded sampling"),
        ({"data_parallel_size": 2}, "data parallelism"),
        ({"pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"kv_transfer_config": object()}, "KV transfer"),
        ({"runner_type": "pooling"}, "a pooling model"),
        ({"enable_prefix_caching": False}, "running without prefix caching"),
    ],
)
def test_what_would_mix_up_rows_or_break_sharing_is_refused(change: dict[str, Any], name: str) -> None:
    with pytest.raises(EngineError, match=f"not supported: {name}"):
        refuse_unsupported(vllm_config(**change))
