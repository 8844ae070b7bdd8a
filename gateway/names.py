"""Resource names (AIP-122): `trees/{tree_id}`, `trees/{tree_id}/nodes/{number}`, `workers/{worker}`."""

from __future__ import annotations

import re

from thoughtbeam.runtime.status import Violation, invalid

# 8-4-4-4-12, lower case: what str(uuid.UUID) writes
TREE_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NODE_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def tree_name(tree_id: str) -> str:
    return f"trees/{tree_id}"


def node_name(tree_id: str, number: int) -> str:
    return f"trees/{tree_id}/nodes/{number}"


def worker_name(worker: str) -> str:
    return f"workers/{worker}"


def parse_tree_name(name: str, field: str) -> str:
    """The tree id in a tree's name. Raises INVALID_ARGUMENT for `field` when it is none."""
    collection, _, tree_id = name.partition("/")
    if collection != "trees" or not TREE_ID.fullmatch(tree_id):
        raise invalid(Violation(field, "must be the name of a tree, trees/{tree_id}, its id a UUID"))
    return tree_id


def parse_node_name(name: str, field: str) -> tuple[str, int]:
    """The tree id and the number in a node's name. Raises INVALID_ARGUMENT for `field` when it is none."""
    tree, _, number = name.partition("/nodes/")
    collection, _, tree_id = tree.partition("/")
    if collection != "trees" or not TREE_ID.fullmatch(tree_id) or not NODE_NUMBER.fullmatch(number):
        what = "the name of a node, trees/{tree_id}/nodes/{number}, the id a UUID, the number at least 1"
        raise invalid(Violation(field, f"must be {what}"))
    return tree_id, int(number)
