"""What was used last is kept, as much of it as there is room for."""

from __future__ import annotations

import pytest

from prm_worker.process_reward.kept import Kept


class Doubling:
    """made: what was asked for, in order."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, key: str) -> str:
        self.made.append(key)
        if not key:
            raise ValueError("empty")
        return key * 2


def size(key: str, value: str) -> int:
    return len(key) + len(value)


def test_a_key_that_comes_again_is_not_made_again() -> None:
    make = Doubling()
    kept = Kept(make, size, 100)
    assert [kept(key) for key in ("a", "b", "a", "b")] == ["aa", "bb", "aa", "bb"]
    assert make.made == ["a", "b"]
    assert kept.used == 6


def test_those_used_longest_ago_make_room() -> None:
    make = Doubling()
    kept = Kept(make, size, 9)
    for key in ("a", "b", "c", "a", "de"):  # the last takes the room of two
        kept(key)
    assert kept.used == 9
    for key in ("a", "de", "b"):
        kept(key)
    assert make.made == ["a", "b", "c", "de", "b"]


def test_what_is_too_large_or_fails_is_not_kept_and_drives_out_nothing() -> None:
    make = Doubling()
    kept = Kept(make, size, 9)
    kept("a")
    for key in ("long", "long"):
        assert kept(key) == "longlong"
    with pytest.raises(ValueError, match="empty"):
        kept("")
    kept("a")
    assert make.made == ["a", "long", "long", ""]
    assert kept.used == 3
