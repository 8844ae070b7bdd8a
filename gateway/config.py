"""What can be set on a gateway. Times are in seconds."""

from __future__ import annotations

from dataclasses import dataclass

A_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All settings of one gateway.

    max_queued: trees that may wait for a worker; above it requests are refused with QUEUE_FULL.
    lease: how long a worker that has just been given a tree may stay silent before it goes to another.
    default_deadline, max_deadline: of a request, counted from its acceptance.
    max_prompt_chars: summed over all messages of a request; the context, in tokens, is the worker's to check.
    dispatch_rate: assignments a second to one worker. reap_interval: between two looks for what was lost.
    cancel_wait: how long CancelTree waits for a running tree to end. grace: how long running calls may go on
    after a stop was asked for.
    """

    listen: str = "127.0.0.1:50551"
    redis_url: str = "redis://127.0.0.1:6379/0"
    max_queued: int = 1000
    lease: float = 10.0
    default_deadline: float = 600.0
    max_deadline: float = A_DAY
    max_prompt_chars: int = 1_000_000
    dispatch_rate: int = 50
    reap_interval: float = 1.0
    cancel_wait: float = 2.0
    grace: float = 30.0

    def __post_init__(self) -> None:
        """Raises ValueError naming the setting and what it may be."""
        for name in ("max_queued", "max_prompt_chars", "dispatch_rate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, is {getattr(self, name)}")
        for name in ("lease", "reap_interval"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0 seconds, is {getattr(self, name)}")
        for name in ("cancel_wait", "grace"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0 seconds, is {getattr(self, name)}")
        if not 0 < self.max_deadline <= A_DAY:
            raise ValueError(f"max_deadline must be above 0 and at most a day, is {self.max_deadline} s")
        if not 0 < self.default_deadline <= self.max_deadline:
            raise ValueError(
                f"default_deadline must be above 0 and at most max_deadline ({self.max_deadline:g} s), "
                f"is {self.default_deadline} s"
            )
