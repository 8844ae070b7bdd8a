from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from tree_store.model import Thought
from tree_store.packing import (
    pack_confidences,
    pack_thoughts,
    pack_tokens,
    unpack_confidences,
    unpack_thoughts,
    unpack_tokens,
)

_SCORE = st.none() | st.floats(0, 1, width=32)


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_tokens_come_back(tokens: list[int]) -> None:
    assert unpack_tokens(pack_tokens(tokens)) == tuple(tokens)


@given(
    st.lists(
        st.builds(
            Thought,
            st.integers(0, 2**31 - 1),
            _SCORE,
            st.none() | st.floats(0, 30, width=32),
            st.integers(0, 2**32 - 1),
        )
    )
)
def test_thoughts_come_back(thoughts: list[Thought]) -> None:
    assert unpack_thoughts(pack_thoughts(thoughts)) == tuple(thoughts)


def test_the_layout_is_little_endian() -> None:
    assert pack_tokens([1, 256]) == b"\x01\0\0\0\0\x01\0\0"
    assert pack_confidences([1.5]) == struct.pack("<f", 1.5)
    assert pack_thoughts([Thought(2, 0.5, 1.0, 9)]) == struct.pack("<iIff", 2, 9, 0.5, 1.0)


def test_pieces_can_be_appended() -> None:
    assert unpack_tokens(pack_tokens([1, 2]) + pack_tokens([3])) == (1, 2, 3)
    confidences = pack_confidences([0.5, 16.25]) + pack_confidences([7.0])
    assert unpack_confidences(confidences) == (0.5, 16.25, 7.0)
    both = pack_thoughts([Thought(1)]) + pack_thoughts([Thought(2, 0.25)])
    assert unpack_thoughts(both) == (Thought(1), Thought(2, 0.25))
