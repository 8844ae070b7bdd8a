from __future__ import annotations

import pytest

from tree_store.keys import TreeKeys
from tree_store.model import NodeState


def test_all_keys_of_a_tree_share_its_hash_tag() -> None:
    keys = TreeKeys("t-1")

    names = [*keys.of_batch(), keys.deleted, *keys.of_nodes([1, 2])]

    assert all(name.startswith("tb:{t-1}:") for name in names)
    assert len(set(names)) == len(names) == 6 + len(NodeState) + 2 * 6
    assert keys.node(7) == "tb:{t-1}:node:7"
    assert keys.state(NodeState.GHOST) == "tb:{t-1}:state:ghost"


@pytest.mark.parametrize("tree_id", ["", "a}b", "{a", "}{"])
def test_an_id_that_breaks_the_hash_tag_is_refused(tree_id: str) -> None:
    with pytest.raises(ValueError, match="tree id"):
        TreeKeys(tree_id)
