"""When a failed call is tried again, and for how long. No I/O: the clients sleep and call."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from thoughtbeam.errors import ApiError, DeadlineExceededError, UnavailableError, invalid_field

# An attempt that fails only after so many seconds was connected, though no message came: a watched search
# may wait in the queue for long. gRPC gives up a connection that cannot be made after 20 s.
_CONNECTED_AFTER = 60.0
# Longest deadline of an attempt, ten years: far above it gRPC's clock overflows, and the call ends at once.
_LONGEST = 10 * 365 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RetryConfig:
    """How a client waits for a service that does not answer (UNAVAILABLE; nothing else is retried).

    initial, multiplier, maximum: the pause in seconds before the first retry, its growth, its limit; a
    random half of it is taken off, so that many clients do not come back at once. A delay that the service
    asks for is kept. first_contact: seconds to try before the client has heard from the service at all;
    outage: seconds to try once it has, long enough for it to be restarted. Every reply starts anew.
    """

    initial: float = 0.2
    multiplier: float = 2.0
    maximum: float = 5.0
    first_contact: float = 5.0
    outage: float = 120.0


@dataclass(frozen=True, slots=True)
class Retry:
    """A call is about to be repeated. error: why; number: of retries since the last reply, from 1; pause:
    seconds until then; window: seconds in all, from the first failure on, after which it is given up;
    contacted: the service has replied to this client before."""

    error: ApiError
    number: int
    pause: float
    window: float
    contacted: bool


OnRetry = Callable[[Retry], None]


class Retries:
    """The retry state of one client: whether the service was ever heard from."""

    def __init__(
        self,
        config: RetryConfig,
        on_retry: OnRetry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.on_retry = on_retry
        self.clock = clock
        self.contacted = False

    def begin(self, timeout: float | None, tree_id: str | None = None) -> Attempts:
        """A new logical call of at most `timeout` seconds. Raises InvalidArgumentError for NaN."""
        if timeout is not None and math.isnan(timeout):
            raise invalid_field("timeout", "nan is no number of seconds")
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
        self._retries_made = 0
        self._since_reply = 0
        self._attempted = self._started

    def remaining(self) -> float | None:
        """Seconds left for the next attempt, which begins now; None: no limit. Raises DeadlineExceededError
        when none are."""
        self._attempted = self._retries.clock()
        if self._timeout is None:
            return None
        left = self._timeout - (self._attempted - self._started)
        if left <= 0:
            raise self._timed_out()
        return min(left, _LONGEST)

    def answered(self) -> None:
        """The service replied: an outage, if there was one, is over."""
        self._retries.contacted = True
        self._failing_since = None
        self._since_reply = 0
        self._pause = self._retries.config.initial

    def pause_after(self, error: ApiError) -> float:
        """Seconds to wait before the next attempt; raises when there is to be none."""
        error.retries = self._retries_made
        if isinstance(error, DeadlineExceededError) and error.reason == "UNKNOWN":
            raise self._timed_out() from error
        if not isinstance(error, UnavailableError):
            self._retries.contacted = True
            raise error
        config, now = self._retries.config, self._retries.clock()
        if now - self._attempted > _CONNECTED_AFTER:
            self.answered()
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
        self._retries_made += 1
        self._since_reply += 1
        if self._retries.on_retry is not None:
            contacted = self._retries.contacted
            self._retries.on_retry(Retry(error, self._since_reply, pause, window, contacted))
        return pause

    def _timed_out(self) -> DeadlineExceededError:
        what = f"no reply within {self._timeout:g} s" if self._timeout is not None else "no reply in time"
        if self._tree_id:
            what += f"; the search may go on: look at tree {self._tree_id} or cancel it"
        return DeadlineExceededError(what, reason="CLIENT_TIMEOUT", tree_id=self._tree_id)
