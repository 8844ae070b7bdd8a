"""What can be set on a decoder worker. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thoughtbeam.runtime.common_settings import A_DAY, ADDRESS, ADDRESSES, LISTEN_ADDRESS, StoreSettings
from thoughtbeam.runtime.settings import setting


@dataclass(frozen=True, slots=True)
class DecoderWorkerConfig(StoreSettings):
    """All settings of one decoder worker process: of its engine and of its place in the service."""

    model: str = setting("Hugging Face directory or name of the model")
    served_name: str | None = setting(
        "name that requests use for the model; none: the last part of model", None
    )
    gateway: str = setting("address of the gateway", "127.0.0.1:50551", form=ADDRESS)
    scorer: str | None = setting(
        "addresses of the prm workers, which serve one and the same scorer; none: only policies that need no "
        "scores run, and searches that name the scorer confidence",
        None,
        form=ADDRESSES,
    )
    scorer_deadline: float = setting(
        "how long a score may take before it counts as lost", 30.0, above=0, at_most=3600, unit="seconds"
    )
    embedding_model: str | None = setting(
        "sentence-transformers name or directory of the model that embeds thoughts for slim_sc; none: that "
        "of the extra slim_sc, where it is installed",
        None,
    )
    listen: str = setting("address of the health service", "127.0.0.1:0", form=LISTEN_ADDRESS)
    profile: str = setting("parameter defaults of the policies", "paper", choices=("paper", "tiny"))
    boundary_rule: str = setting(
        "where thoughts end, as the scorer was trained",
        "blank_line",
        choices=("blank_line", "blank_line_before_think_end"),
    )
    slots: int = setting(
        "traces that the engine decodes at once", 64, at_least=1, at_most=65_536, unit="traces"
    )
    max_capacity: int = setting(
        "largest logical capacity of one search", 512, at_least=1, at_most=65_536, unit="traces"
    )
    max_context: int = setting(
        "longest sequence; 0: the model's", 0, at_least=0, at_most=100_000_000, unit="tokens"
    )
    dtype: str = setting(
        "of weights and activations; auto: the model's",
        "auto",
        choices=("auto", "float32", "float16", "bfloat16"),
    )
    kv_blocks: int = setting(
        "size of the KV cache; 0: what memory allows", 0, at_least=0, at_most=100_000_000, unit="blocks"
    )
    block_size: int = setting(
        "of a KV block; 0: the engine's default", 0, at_least=0, at_most=65_536, unit="tokens"
    )
    gpu_memory: float = setting("share of GPU memory that the engine may take", 0.9, above=0, at_most=1)
    tensor_parallel: int = setting("GPUs that share the model", 1, at_least=1, at_most=1024, unit="GPUs")
    lease_seconds: float = setting(
        "how long a tree stays with this worker without a renewal",
        10.0,
        above=0,
        at_most=A_DAY,
        unit="seconds",
    )
    drain_seconds: float = setting(
        "how long running trees may go on after SIGTERM before they are handed back",
        60.0,
        at_least=0,
        at_most=A_DAY,
        unit="seconds",
    )

    @property
    def model_name(self) -> str:
        """The name that requests use."""
        return self.served_name or Path(self.model).name
