"""Which tree is told of memory pressure, and how many blocks its traces hold."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.scheduler_view import SETTLE_STEPS, SchedulerView, kv_share
from decoder_worker.tree_view import Trace, TreeView
from tree_store.model import NodeState, Thought


@dataclass
class Tree:
    """A running tree as the Scheduler View sees it."""

    tree_id: str
    high_water: float = 0.5
    prompt_tokens: int = 10
    view: TreeView = field(default_factory=TreeView)


def grow(view: TreeView, trace: Trace, tokens: int, *, boundary: bool = False) -> None:
    if trace.state is NodeState.PENDING:
        view.move(trace, NodeState.LIVE)
    view.append_tokens(trace, range(tokens))
    if boundary:
        trace.thoughts.append(Thought(trace.total_tokens))
        view.set_score(trace, len(trace.thoughts) - 1, 0.5)


def brute_force(view: TreeView, prompt: int, block: int) -> tuple[int, dict[int, int]]:
    """Blocks as the engine hashes them: a full block is known by all tokens up to its end."""
    owners: dict[object, set[int]] = {}
    for trace in view.in_state(NodeState.LIVE):
        # a token is known by the node that made it and its position
        path: list[object] = []
        end = trace.total_tokens
        for node in (trace, *trace.ancestors()):
            path = [(node.number, p) for p in range(node.branch_position, end)] + path
            end = node.branch_position
        sequence = [("prompt", p) for p in range(prompt)] + path
        for start in range(0, len(sequence), block):
            part = sequence[start : start + block]
            key = (start, part[-1]) if len(part) == block else (start, "partial", trace.number)
            owners.setdefault(key, set()).add(trace.number)
    prompt_blocks = {(start, ("prompt", start + block - 1)) for start in range(0, prompt, block)}
    private = {t.number: 0 for t in view.in_state(NodeState.LIVE)}
    for key, users in owners.items():
        if len(users) == 1 and key not in prompt_blocks:
            private[next(iter(users))] += 1
    return len(owners), private


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 16))
def test_blocks_are_counted_as_the_engine_shares_them(seed: int, prompt: int, block: int) -> None:
    rng = random.Random(seed)
    view = TreeView()
    for _ in range(rng.randint(1, 3)):
        grow(view, view.add_root(), rng.randint(0, 20), boundary=rng.random() < 0.8)
    for _ in range(rng.randint(0, 12)):
        trace = view[rng.randint(1, len(view))]
        if trace.state is NodeState.LIVE and rng.random() < 0.2:
            view.move(trace, rng.choice([NodeState.GHOST, NodeState.PRUNED, NodeState.FINISHED]))
        elif trace.state is NodeState.LIVE and trace.last_scored() and rng.random() < 0.6:
            grow(view, view.add_branch(trace), rng.randint(0, 20), boundary=rng.random() < 0.8)
        elif trace.state is NodeState.LIVE:
            grow(view, trace, rng.randint(1, 20), boundary=True)
    share = kv_share(view, prompt, block)
    assert (share.total, dict(share.private)) == brute_force(view, prompt, block)


def test_no_pressure_below_the_high_water_mark() -> None:
    view = SchedulerView(kv_blocks=100, block_size=4)
    tree = Tree("a")
    grow(tree.view, tree.view.add_root(), 40)
    view.observe(1, 0.5)
    assert view.pressure([tree]) is None


def test_the_tree_that_holds_most_is_told_how_much_to_give_back() -> None:
    view = SchedulerView(kv_blocks=100, block_size=4)
    small, large = Tree("small"), Tree("large")
    grow(small.view, small.view.add_root(), 40)
    grow(large.view, large.view.add_root(), 80)
    for tree in (small, large):
        grow(tree.view, tree.view.add_root(), 2)
    view.observe(1, 0.62)
    told = view.pressure([small, large])
    assert told is not None
    tree_id, pressure = told
    assert tree_id == "large"
    assert pressure.blocks == 12  # down to 0.5 of 100
    # 90 and 12 tokens are 23 and 3 blocks, of which the prompt's first 2 are shared
    assert dict(pressure.held) == {1: 21, 2: 1}


def test_a_tree_with_one_live_trace_has_nothing_to_give_back() -> None:
    view = SchedulerView(kv_blocks=100, block_size=4)
    large, small = Tree("large"), Tree("small")
    grow(large.view, large.view.add_root(), 80)
    for _ in range(2):
        grow(small.view, small.view.add_root(), 4)
    view.observe(1, 0.9)
    assert view.pressure([large]) is None
    told = view.pressure([large, small])
    assert told is not None
    assert told[0] == "small"


def test_relief_is_given_time_to_settle() -> None:
    view = SchedulerView(kv_blocks=100, block_size=4)
    tree = Tree("a")
    for _ in range(2):
        grow(tree.view, tree.view.add_root(), 40)
    view.observe(1, 0.9)
    assert view.pressure([tree]) is not None
    view.observe(2, 0.9)
    assert view.pressure([tree]) is None
    view.observe(1 + SETTLE_STEPS, 0.9)
    assert view.pressure([tree]) is not None


def test_a_tree_that_wants_no_pressure_gets_none() -> None:
    view = SchedulerView(kv_blocks=100, block_size=4)
    tree = Tree("a", high_water=1.0)
    grow(tree.view, tree.view.add_root(), 40)
    view.observe(1, 1.0)
    assert view.pressure([tree]) is None


def test_the_engine_preempts_the_worst_trace_of_the_largest_tree_first() -> None:
    view = SchedulerView(kv_blocks=100, block_size=4)
    small, large = Tree("small"), Tree("large")
    grow(small.view, small.view.add_root(), 10)
    for score in (0.9, 0.1, None):
        root = large.view.add_root()
        grow(large.view, root, 30)
        if score is not None:
            root.thoughts.append(Thought(30))
            large.view.set_score(root, 0, score)
    ranks = view.priorities([large, small])
    assert sorted(ranks, key=lambda key: ranks[key]) == [
        ("small", 1),
        ("large", 1),
        ("large", 3),
        ("large", 2),
    ]
