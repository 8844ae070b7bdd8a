from __future__ import annotations

import contextlib
import math

import pytest

from thoughtbeam._retry import Retries, Retry, RetryConfig
from thoughtbeam.errors import DeadlineExceededError, InvalidArgumentError, NotFoundError, UnavailableError

CONFIG = RetryConfig(initial=1.0, multiplier=2.0, maximum=4.0, first_contact=10.0, outage=100.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def retries(clock: Clock) -> Retries:
    return Retries(CONFIG, clock=clock)


def lost() -> UnavailableError:
    return UnavailableError("lost")


def total_pause(retries: Retries, clock: Clock) -> float:
    """How long a call is tried until it gives up."""
    attempts = retries.begin(None)
    began = clock.now
    with contextlib.suppress(UnavailableError):
        while True:
            attempts.remaining()
            clock.now += attempts.pause_after(lost())
    return clock.now - began


@pytest.mark.parametrize("timeout", [1e9, 1e300, math.inf])
def test_a_timeout_that_no_clock_reaches_is_one_that_grpc_can_count(retries: Retries, timeout: float) -> None:
    remaining = retries.begin(timeout).remaining()

    assert remaining is not None
    assert 1e8 < remaining < 1e9


def test_a_timeout_that_is_no_number_is_refused(retries: Retries) -> None:
    with pytest.raises(InvalidArgumentError, match="timeout"):
        retries.begin(math.nan)


def test_pauses_grow_to_their_limit_and_vary(retries: Retries) -> None:
    retries.contacted = True
    attempts = retries.begin(None)

    pauses = [attempts.pause_after(lost()) for _ in range(5)]

    for pause, longest in zip(pauses, [1.0, 2.0, 4.0, 4.0, 4.0], strict=True):
        assert longest / 2 <= pause <= longest
    assert len(set(pauses)) == 5


def test_a_service_never_heard_of_is_given_up_soon(retries: Retries, clock: Clock) -> None:
    assert 10.0 - CONFIG.maximum <= total_pause(retries, clock) <= 10.0


def test_a_service_once_heard_of_is_waited_for(retries: Retries, clock: Clock) -> None:
    retries.begin(None).answered()

    assert 100.0 - CONFIG.maximum <= total_pause(retries, clock) <= 100.0


def test_an_error_is_an_answer_too(retries: Retries) -> None:
    with pytest.raises(NotFoundError):
        retries.begin(None).pause_after(NotFoundError("no such tree"))

    assert retries.contacted


def test_an_answer_ends_an_outage(retries: Retries, clock: Clock) -> None:
    attempts = retries.begin(None)
    for _ in range(5):
        attempts.answered()
        clock.now += 90.0
        assert attempts.pause_after(lost()) <= 1.0


def test_the_timeout_counts_from_the_first_attempt(retries: Retries, clock: Clock) -> None:
    attempts = retries.begin(5.0, "t1")
    clock.now += 3.0
    assert attempts.remaining() == 2.0
    clock.now += 2.0

    with pytest.raises(DeadlineExceededError) as caught:
        attempts.remaining()
    assert caught.value.tree_id == "t1"


def test_no_pause_reaches_past_the_timeout(retries: Retries, clock: Clock) -> None:
    attempts = retries.begin(5.0)
    clock.now += 4.8

    with pytest.raises(UnavailableError):
        attempts.pause_after(lost())


def test_a_delay_asked_for_is_kept_when_there_is_room(retries: Retries) -> None:
    error = UnavailableError("full", retry_after=7.0)

    assert retries.begin(None).pause_after(error) == 7.0


def test_a_stream_that_was_silent_for_long_was_connected(retries: Retries, clock: Clock) -> None:
    # given a watched search that waits in the queue, and a service that is restarted every hour
    retries.contacted = True
    attempts = retries.begin(None)
    for _ in range(5):
        attempts.remaining()
        clock.now += 3600.0
        # then each time is an outage of its own
        assert attempts.pause_after(lost()) <= 1.0


def test_a_call_that_must_not_be_repeated(retries: Retries) -> None:
    never = UnavailableError("no", retry_after=math.inf)

    with pytest.raises(UnavailableError) as caught:
        retries.begin(None).pause_after(never)
    assert caught.value is never


def test_each_retry_is_told_of(clock: Clock) -> None:
    told: list[Retry] = []
    retries = Retries(CONFIG, told.append, clock)
    attempts = retries.begin(None)

    pauses = [attempts.pause_after(lost()), attempts.pause_after(lost())]
    attempts.answered()
    pauses.append(attempts.pause_after(lost()))

    assert [r.pause for r in told] == pauses
    assert [(r.number, r.contacted, r.window) for r in told] == [
        (1, False, 10.0),
        (2, False, 10.0),
        (1, True, 100.0),
    ]
    with pytest.raises(NotFoundError) as caught:
        attempts.pause_after(NotFoundError("no such tree"))
    assert caught.value.retries == 3
