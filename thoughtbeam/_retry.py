"""When a failed call is tried again, and for how long. No I/O: the clients sleep and call."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from thoughtbeam.errors import ApiError, DeadlineExceededError, UnavailableError


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """How a client waits for a service that does not answer (UNAVAILABLE; nothing else is retried).

    initial, multiplier, maximum: the pause in seconds before the first retry, its growth, its limit; a
    random half of it is taken off, so that many clients do not come back at once. first_contact: seconds to
    try before the client has heard from the service at all; outage: seconds to try once it has. Every reply
    starts anew.
    """

    initial: float = 0.2
    multiplier: float = 2.0
    maximum: float = 5.0
    first_contact: float = 5.0
    outage: float = 60.0


class Retries:
    """The retry state of one client: whether the service was ever heard from."""

    def __init__(self, config: RetryConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.clock = clock
        self.contacted = False

    def begin(self, timeout: float | None, tree_id: str | None = None) -> Attempts:
        """A new logical call of at most `timeout` seconds."""
        return Attempts(self, timeout, tree_id)


class Attempts:
    """One logical call: what is left of its time, and the pause after each failure."""

    def __init__(self, retries: Retries, timeout: float | None, tree_id: str | None) -> None:
        self._retries = retries
        self._timeout = timeout
        self._tree_id = tree_id
        self._started = retries.clock()
        self._pause = retries.config.initial
        self._failing_since: float | None = None

    def remaining(self) -> float | None:
        """Seconds left for the next attempt; None: no limit. Raises DeadlineExceededError when none are."""
        if self._timeout is None:
            return None
        left = self._timeout - (self._retries.clock() - self._started)
        if left <= 0:
            raise self._timed_out()
        return left

    def answered(self) -> None:
        """The service replied: an outage, if there was one, is over."""
        self._retries.contacted = True
        self._failing_since = None
        self._pause = self._retries.config.initial

    def pause_after(self, error: ApiError) -> float:
        """Seconds to wait before the next attempt; raises when there is to be none."""
        if isinstance(error, DeadlineExceededError) and error.reason == "UNKNOWN":
            raise self._timed_out() from error
        if not isinstance(error, UnavailableError):
            self._retries.contacted = True
            raise error
        config, now = self._retries.config, self._retries.clock()
        if self._failing_since is None:
            self._failing_since = now
        pause = max(self._pause * random.uniform(0.5, 1.0), error.retry_after or 0.0)
        self._pause = min(self._pause * config.multiplier, config.maximum)
        window = config.outage if self._retries.contacted else config.first_contact
        after = now + pause
        if after - self._failing_since > window:
            raise error
        if self._timeout is not None and after - self._started >= self._timeout:
            raise error
        return pause

    def _timed_out(self) -> DeadlineExceededError:
        what = f"no reply within {self._timeout:g} s" if self._timeout is not None else "no reply in time"
        if self._tree_id:
            what += f"; the search may go on: look at tree {self._tree_id} or cancel it"
        return DeadlineExceededError(what, reason="CLIENT_TIMEOUT", tree_id=self._tree_id)
