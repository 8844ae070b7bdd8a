from __future__ import annotations

import re

import pytest

from tree_store import scripts
from tree_store.batches import COUNTERS
from tree_store.keys import RETENTION, UNSCORED
from tree_store.model import NODE_TRANSITIONS, NodeState
from tree_store.packing import THOUGHT


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_says_what_it_is_given(name: str) -> None:
    lines = scripts.source(name).splitlines()

    assert lines[0].startswith("#!lua")
    header = " ".join(line for line in lines[1:10] if line.startswith("--"))
    assert "KEYS" in header
    assert "--#include" not in "\n".join(lines)


@pytest.mark.parametrize("name", scripts.names())
def test_a_script_uses_no_key_that_it_was_not_given(name: str) -> None:
    # a cluster finds the node by the keys it is told
    assert not re.search(r"['\"]tb:", scripts.source(name))


def test_an_include_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        scripts.source("no-such-script")


def test_lua_and_python_agree_on_what_both_write_down() -> None:
    commit = scripts.source("commit")

    table = commit[commit.index("local STEPS = {") :]
    for state in NodeState:
        row = re.search(rf"\b{state} = {{(.*?)}}", table)
        assert row is not None
        assert set(re.findall(r"(\w+) = true", row[1])) == set(NODE_TRANSITIONS[state])
    states = re.search(r"local STATES = {(.*?)}", commit)
    assert states is not None
    assert re.findall(r"'(\w+)'", states[1]) == list(NodeState)
    counters = re.search(r"local COUNTERS = {(.*?)}", commit)
    assert counters is not None
    assert {*re.findall(r"'(\w+)'", counters[1]), *NodeState} == set(COUNTERS)
    assert f"local UNSCORED = '{UNSCORED}'" in commit
    assert f"local THOUGHT_BYTES = {THOUGHT.size}" in commit
    assert f"local RETENTION = {RETENTION // 3600} * 3600 * 1000" in commit
