"""Binary values of the tree store, little-endian so that any client can read them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from tree_store.model import Thought

# position (int32), text_end (uint32), score (float32, NaN: unscored), confidence (float32, NaN: none)
THOUGHT = struct.Struct("<iIff")


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Token ids as int32."""
    return struct.pack(f"<{len(tokens)}i", *tokens)


def unpack_tokens(data: bytes) -> tuple[int, ...]:
    """The inverse of pack_tokens."""
    return struct.unpack(f"<{len(data) // 4}i", data)


def pack_confidences(confidences: Sequence[float]) -> bytes:
    """One per token, rounded to float32."""
    return struct.pack(f"<{len(confidences)}f", *confidences)


def unpack_confidences(data: bytes) -> tuple[float, ...]:
    """The inverse of pack_confidences."""
    return struct.unpack(f"<{len(data) // 4}f", data)


def pack_thoughts(thoughts: Sequence[Thought]) -> bytes:
    """16 bytes per thought, see THOUGHT. Scores and confidences are rounded to float32."""
    return b"".join(
        THOUGHT.pack(
            thought.position,
            thought.text_end,
            math.nan if thought.score is None else thought.score,
            math.nan if thought.confidence is None else thought.confidence,
        )
        for thought in thoughts
    )


def unpack_thoughts(data: bytes) -> tuple[Thought, ...]:
    """The inverse of pack_thoughts."""
    return tuple(
        Thought(
            position,
            None if math.isnan(score) else score,
            None if math.isnan(confidence) else confidence,
            text_end,
        )
        for position, text_end, score, confidence in THOUGHT.iter_unpack(data)
    )
