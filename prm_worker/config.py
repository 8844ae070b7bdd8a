"""What can be set on a prm worker. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thoughtbeam.runtime.common_settings import LISTEN_ADDRESS, CommonSettings
from thoughtbeam.runtime.settings import setting


@dataclass(frozen=True, slots=True)
class PrmWorkerConfig(CommonSettings):
    """All settings of one prm worker."""

    listen: str = setting("address to serve on", "127.0.0.1:50552", form=LISTEN_ADDRESS)
    scorer: Path = setting("scorer file (.pt)")
    model_fingerprint: str | None = setting(
        "for a scorer file that does not record it: the model it was trained for; none: not checked", None
    )
    boundary_rule: str | None = setting(
        "for a scorer file that does not record it: the rule of its positions; none: not checked", None
    )
    threads: int = setting("of the CPU, for one pass", 1, at_least=1, at_most=1024, unit="threads")
    max_rows: int = setting("in one call and in one pass", 1024, at_least=1, at_most=1_000_000, unit="rows")
    device: str = setting("that scores: cpu, cuda, cuda:1 …", "cpu")
    grace: float = setting(
        "how long running calls may go on after SIGTERM", 5.0, at_least=0, at_most=3600, unit="seconds"
    )
