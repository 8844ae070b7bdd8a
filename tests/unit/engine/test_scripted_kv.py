"""The scripted KV cache counts what vLLM's would hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.engine.scripted_kv import Residence, SharedKv


def blocks_of(tokens: list[int], size: int) -> set[tuple[int, ...]]:
    return {tuple(tokens[:end]) for end in range(size, len(tokens) + 1, size)}


@given(
    total=st.integers(2, 12),
    size=st.integers(1, 4),
    moves=st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 1), min_size=1, max_size=12))),
)
def test_use_is_the_number_of_different_prefixes(
    total: int, size: int, moves: list[tuple[int, list[int]]]
) -> None:
    kv = SharedKv(total, size)
    held: dict[int, tuple[list[int], Residence]] = {}

    def used(sequences: list[list[int]]) -> int:
        full = set().union(*(blocks_of(tokens, size) for tokens in sequences))
        return len(full) + sum(len(tokens) % size > 0 for tokens in sequences)

    for name, tokens in moves:
        sequences = [sequence for sequence, _ in held.values()]
        if name not in held:
            residence = kv.admit(tokens)
            assert (residence is not None) == (used([*sequences, tokens]) <= total)
            if residence is not None:
                held[name] = (tokens, residence)
        elif len(tokens) % 3:
            sequence, residence = held[name]
            needs_block = len(sequence) % size == 0
            grown = kv.grow(residence, tokens[0])
            assert grown == (not needs_block or used(sequences) < total)
            if grown:
                sequence.append(tokens[0])
        else:
            kv.release(held.pop(name)[1])
        assert kv.used == used([sequence for sequence, _ in held.values()])
    for _, residence in held.values():
        kv.release(residence)
    assert kv.used == 0


def test_what_was_computed_is_found_again_until_its_room_is_needed() -> None:
    kv = SharedKv(total=4, block_size=2)
    first = kv.admit([1, 2, 3, 4, 5])
    assert first is not None
    assert first.cached == 0
    branch = kv.admit([1, 2, 3, 9])
    assert branch is not None
    assert branch.cached == 2
    kv.release(branch)
    kv.release(first)
    again = kv.admit([1, 2, 3, 4])
    assert again is not None
    assert again.cached == 2  # the last token is computed in any case
    kv.release(again)
    other = kv.admit([7] * 8)
    assert other is not None
    kv.release(other)
    last = kv.admit([1, 2, 3, 4])
    assert last is not None
    assert last.cached == 0
