"""What can be set on a gateway. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from thoughtbeam.runtime.common_settings import A_DAY, LISTEN_ADDRESS, StoreSettings
from thoughtbeam.runtime.settings import SettingError, check_settings, setting

__all__ = ["A_DAY", "GatewayConfig"]


@dataclass(frozen=True, slots=True)
class GatewayConfig(StoreSettings):
    """All settings of one gateway."""

    listen: str = setting("address to serve on", "127.0.0.1:50551", form=LISTEN_ADDRESS)
    max_queued: int = setting(
        "trees that may wait for a worker; above it requests are refused with QUEUE_FULL",
        1000,
        at_least=1,
        at_most=1_000_000,
        unit="trees",
    )
    max_events: int = setting(
        "newest events of a tree that are kept for watchers",
        100_000,
        at_least=1,
        at_most=10_000_000,
        unit="events",
    )
    lease: float = setting(
        "how long a worker that has just been given a tree may stay silent before it goes to another",
        10.0,
        above=0,
        at_most=A_DAY,
        unit="seconds",
    )
    default_deadline: float = setting(
        "of a request that names none, counted from its acceptance; not above max_deadline",
        600.0,
        above=0,
        at_most=A_DAY,
        unit="seconds",
    )
    max_deadline: float = setting(
        "the longest deadline of a request", A_DAY, above=0, at_most=A_DAY, unit="seconds"
    )
    # the context, in tokens, is the worker's to check
    max_prompt_chars: int = setting(
        "of all messages of a request together", 1_000_000, at_least=1, at_most=10_000_000, unit="characters"
    )
    dispatch_rate: int = setting(
        "assignments a second to one worker", 50, at_least=1, at_most=100_000, unit="trees"
    )
    reap_interval: float = setting(
        "between two looks for what was lost", 1.0, above=0, at_most=3600, unit="seconds"
    )
    cancel_wait: float = setting(
        "how long CancelTree waits for a running tree to end", 2.0, at_least=0, at_most=3600, unit="seconds"
    )
    grace: float = setting(
        "how long running calls may go on after SIGTERM", 30.0, at_least=0, at_most=A_DAY, unit="seconds"
    )

    def __post_init__(self) -> None:
        """Raises SettingError naming the setting and what it may be."""
        check_settings(self)
        if self.default_deadline > self.max_deadline:
            raise SettingError(
                "default_deadline",
                f"must be at most max_deadline, {self.max_deadline:g} (seconds); "
                f"is {self.default_deadline:g}",
            )
