"""The queue of pending traces: first come first served, never more than B in the engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.slots import Slots


def test_slots_go_in_order_of_arrival() -> None:
    slots: Slots[str] = Slots(2)
    for name in "abc":
        slots.submit(name, name)
    assert slots.grant() == ["a", "b"]
    slots.release("a")
    assert slots.grant() == ["c"]


def test_a_request_is_taken_only_when_a_slot_is_free_and_no_trace_waits() -> None:
    slots: Slots[str] = Slots(1)
    assert slots.accepts_request
    slots.submit("a", "a")
    assert not slots.accepts_request
    slots.grant()
    assert not slots.accepts_request
    slots.release("a")
    assert slots.accepts_request


def test_a_waiting_trace_can_withdraw() -> None:
    slots: Slots[str] = Slots(1)
    slots.submit("a", "a")
    slots.submit("b", "b")
    slots.release("a")
    assert slots.grant() == ["b"]


def test_a_trace_has_one_place() -> None:
    slots: Slots[str] = Slots(1)
    slots.submit("a", "a")
    with pytest.raises(ValueError, match="a has a place"):
        slots.submit("a", "a")


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.sampled_from(["submit", "release", "grant"]), st.integers(0, 9))),
)
def test_never_more_than_b_traces_in_the_engine(size: int, moves: list[tuple[str, int]]) -> None:
    slots: Slots[str] = Slots(size)
    running: set[str] = set()
    waiting: list[str] = []
    for move, number in moves:
        key = str(number)
        if move == "submit" and key not in running and key not in waiting:
            slots.submit(key, key)
            waiting.append(key)
        elif move == "release":
            slots.release(key)
            running.discard(key)
            waiting = [k for k in waiting if k != key]
        elif move == "grant":
            granted = slots.grant()
            assert granted == waiting[: len(granted)]
            running |= set(granted)
            waiting = waiting[len(granted) :]
        assert len(running) == size - slots.free <= size
        assert slots.waiting == len(waiting)
