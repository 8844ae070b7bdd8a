"""What can be set on a prm worker. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thoughtbeam.runtime.common_settings import LISTEN_ADDRESS, CommonSettings
from thoughtbeam.runtime.settings import SettingError, setting


@dataclass(frozen=True, slots=True)
class PrmWorkerConfig(CommonSettings):
    """All settings of one prm worker."""

    listen: str = setting("address to serve on", "127.0.0.1:50552", form=LISTEN_ADDRESS)
    scorer: Path | None = setting("scorer file (.pt); none: a process_reward is given", None)
    process_reward: str | None = setting(
        "Hugging Face directory or name of a model that scores texts; none: a scorer is given",
        None,
    )
    max_context: int = setting(
        "of a process_reward, later steps are not scored; 0: the model's",
        0,
        at_least=0,
        at_most=100_000_000,
        unit="tokens",
    )
    dtype: str = setting(
        "of a process_reward's weights and activations; auto: the model's",
        "auto",
        choices=("auto", "float32", "float16", "bfloat16"),
    )
    gpu_memory: float = setting(
        "share of GPU memory that the engine of a process_reward may take", 0.9, above=0, at_most=1
    )
    model_fingerprint: str | None = setting(
        "for a scorer file that does not record it: the model it was trained for; none: not checked", None
    )
    boundary_rule: str | None = setting(
        "for a scorer file that does not record it: the rule of its positions; none: not checked", None
    )
    allow_mismatch: bool = setting(
        "score rows of another model or boundary rule than the scorer's, and say so in every answer", False
    )
    threads: int = setting("of the CPU, for one pass", 1, at_least=1, at_most=1024, unit="threads")
    max_rows: int = setting(
        "in one call and in one pass; of a process_reward: traces in one call",
        1024,
        at_least=1,
        at_most=1_000_000,
        unit="rows",
    )
    device: str = setting("that scores: cpu, cuda, cuda:1 …", "cpu")
    cache_mb: int = setting(
        "for the histories of traces (scorers of kind sequence)",
        512,
        at_least=16,
        at_most=1_000_000,
        unit="MiB",
    )
    cache_dtype: str = setting("of the histories of traces", "float16", choices=("float16", "float32"))
    grace: float = setting(
        "how long running calls may go on after SIGTERM", 5.0, at_least=0, at_most=3600, unit="seconds"
    )

    def __post_init__(self) -> None:
        """Raises SettingError naming the setting and what it may be."""
        CommonSettings.__post_init__(self)  # super() does not know a class with slots
        if (self.scorer is None) == (self.process_reward is None):
            given = "neither is" if self.scorer is None else "both are"
            raise SettingError("scorer", f"must be given, or else process_reward; {given}")
