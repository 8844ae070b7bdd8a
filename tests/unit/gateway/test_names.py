from __future__ import annotations

import pytest

from gateway.names import node_name, parse_node_name, parse_tree_name, tree_name
from tests.unit.gateway.requests import REQUEST_ID
from thoughtbeam.runtime.status import StatusError


def test_a_name_is_read_as_it_is_written() -> None:
    assert parse_tree_name(tree_name(REQUEST_ID), "name") == REQUEST_ID
    assert parse_node_name(node_name(REQUEST_ID, 17), "name") == (REQUEST_ID, 17)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "trees/",
        REQUEST_ID,
        f"nodes/{REQUEST_ID}",
        f"trees/{REQUEST_ID.upper()}",
        f"trees/{REQUEST_ID}/nodes/1",
        f"trees/{REQUEST_ID}\n",
        "trees/tb:{x}",
    ],
)
def test_what_is_no_name_of_a_tree_is_refused(name: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_tree_name(name, "parent")

    assert [v.field for v in caught.value.violations] == ["parent"]


@pytest.mark.parametrize("number", ["", "0", "-1", "01", "1.0", "x", "1/text", "9" * 10, "1\n", "١"])
def test_what_is_no_name_of_a_node_is_refused(number: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse_node_name(f"trees/{REQUEST_ID}/nodes/{number}", "name")

    assert [v.field for v in caught.value.violations] == ["name"]


@pytest.mark.parametrize("name", [f"trees/{REQUEST_ID}", "trees/1/nodes/1", f"workers/{REQUEST_ID}/nodes/1"])
def test_a_node_is_named_within_its_tree(name: str) -> None:
    with pytest.raises(StatusError):
        parse_node_name(name, "name")
