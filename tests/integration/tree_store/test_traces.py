"""Reading a trace: along its ancestors, each up to where the next one branched off."""

from __future__ import annotations

import pytest

from tests.integration.tree_store.helpers import FINISHED, LIVE, PENDING, Client, created, running
from tree_store.errors import NodeNotFoundError, TreeNotFoundError
from tree_store.keys import TreeKeys
from tree_store.model import Batch, Thought
from tree_store.store import TreeStore
from tree_store.traces import TEXT_PIECE, Stretch


async def _family(store: TreeStore) -> str:
    """1 passes three boundaries; 2 branches at its second and passes one; 3 branches there; 4 branches from 3
    before that has a boundary of its own, at one that it inherited from 1; 5 inherits nothing."""
    tree_id, epoch = await running(store)
    root = (Thought(10, 0.5, None, 5), Thought(20, 0.25, 0.75, 11), Thought(30, None, None, 16))
    nodes = (
        created(1, PENDING, LIVE, FINISHED, text="öne\n\ntwo!\n\nthr\n\nend", thoughts=root),
        created(
            2,
            PENDING,
            LIVE,
            parent=1,
            branch_position=20,
            text="2a\n\n",
            thoughts=(Thought(25, 0.5, None, 4),),
        ),
        created(3, PENDING, LIVE, parent=2, branch_position=25, text="3"),
        created(4, PENDING, LIVE, parent=3, branch_position=10, text="4"),
        created(5, PENDING, parent=1, branch_position=0),
    )
    await store.commit(tree_id, epoch, 1, Batch(nodes=nodes))
    return tree_id


async def _text(store: TreeStore, tree_id: str, stretches: list[Stretch]) -> str:
    return "".join([piece for part in stretches async for piece in store.stretch_text(tree_id, part)])


@pytest.mark.parametrize(
    ("node", "path", "positions", "whole"),
    [
        (1, [1], [10, 20, 30], "öne\n\ntwo!\n\nthr\n\nend"),
        (2, [1, 2], [10, 20, 25], "öne\n\ntwo!\n2a\n\n"),
        (3, [1, 2, 3], [10, 20, 25], "öne\n\ntwo!\n2a\n\n3"),
        (4, [1, 2, 3, 4], [10], "öne\n4"),
        (5, [1, 5], [], ""),
    ],
)
async def test_a_trace_is_put_together_along_its_path(
    store: TreeStore, node: int, path: list[int], positions: list[int], whole: str
) -> None:
    tree_id = await _family(store)

    stretches = await store.stretches(tree_id, node)

    assert [stretch.node for stretch in stretches] == path
    assert [thought.position for part in stretches for thought in part.thoughts] == positions
    assert await _text(store, tree_id, stretches) == whole
    assert await store.stretches(tree_id, node, own_only=True) == stretches[-1:]


@pytest.mark.parametrize("pad", range(4))
async def test_a_long_text_comes_in_pieces_that_split_no_character(store: TreeStore, pad: int) -> None:
    tree_id, epoch = await running(store)
    long = "x" * pad + "𝛼é€" * 40_000
    await store.commit(tree_id, epoch, 1, Batch(nodes=(created(1, PENDING, LIVE, text=long),)))
    [stretch] = await store.stretches(tree_id, 1)

    pieces = [piece async for piece in store.stretch_text(tree_id, stretch)]

    assert stretch.text_bytes == len(long.encode())
    assert "".join(pieces) == long
    assert all(len(piece.encode()) <= TEXT_PIECE for piece in pieces)
    assert len(pieces) == -(-len(long.encode()) // TEXT_PIECE)


async def test_a_trace_that_vanishes_while_it_is_read_is_not_cut_short(
    store: TreeStore, client: Client
) -> None:
    tree_id = await _family(store)
    stretches = await store.stretches(tree_id, 2)
    client.delete(TreeKeys(tree_id).text(2))

    with pytest.raises(TreeNotFoundError):
        await _text(store, tree_id, stretches)


async def test_what_is_not_there_is_told_apart(store: TreeStore) -> None:
    tree_id = await _family(store)

    with pytest.raises(NodeNotFoundError, match="no node 6"):
        await store.stretches(tree_id, 6)
    with pytest.raises(TreeNotFoundError):
        await store.stretches("6f1d1c9e-3f0a-4c55-9a5e-0c6b7b1f2a3d", 1)
