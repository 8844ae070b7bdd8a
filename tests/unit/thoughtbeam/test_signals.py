from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from thoughtbeam.supervision.signals import StopRequestedError, StopSignals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_a_signal_only_leaves_a_note() -> None:
    with StopSignals() as signals:
        signals.check()
        send(signal.SIGTERM)

        with pytest.raises(StopRequestedError, match="SIGTERM") as caught:
            signals.check()
    assert caught.value.signal_number == signal.SIGTERM


def test_the_first_signal_is_the_reason() -> None:
    with StopSignals() as signals:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            send(number)

        assert signals.received == signal.SIGINT


def test_a_signal_ends_a_wait() -> None:
    with StopSignals() as signals:
        timer = threading.Timer(0.1, send, [signal.SIGINT])
        timer.start()
        started = time.monotonic()
        with pytest.raises(StopRequestedError):
            signals.wait(30.0)
        timer.join()

    assert time.monotonic() - started < 60


def test_a_wait_without_a_signal_ends_by_itself() -> None:
    with StopSignals() as signals:
        signals.wait(0.05)


def test_an_interruptible_part_is_interrupted_once() -> None:
    def sleep_through_a_signal() -> None:
        try:
            send(signal.SIGINT)
            time.sleep(5.0)
        except KeyboardInterrupt:
            send(signal.SIGINT)  # while the first one is handled
            raise

    with StopSignals() as signals:
        with pytest.raises(KeyboardInterrupt), signals.interruptible():
            sleep_through_a_signal()
        send(signal.SIGINT)


def test_a_signal_from_before_interrupts_at_once() -> None:
    with StopSignals() as signals:
        send(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), signals.interruptible():
            raise AssertionError("must not be entered")


def test_handlers_are_put_back() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with StopSignals():
        assert signal.getsignal(signal.SIGINT) not in before

    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as signals:
            send(signal.SIGHUP)
            signals.check()
    finally:
        signal.signal(signal.SIGHUP, before)
