"""The Tree View: scores and tokens along a path, inheritance, restoring, and what it refuses."""

from __future__ import annotations

import math
import random
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder_worker.tree_view import IllegalTransitionError, Trace, TreeView
from tree_store.model import COUNTING, NODE_TRANSITIONS, NodeState, Thought


def live_root(view: TreeView) -> Trace:
    trace = view.add_root()
    view.move(trace, NodeState.LIVE)
    return trace


def think(view: TreeView, trace: Trace, tokens: list[int], score: float | None) -> None:
    view.append_tokens(trace, tokens)
    trace.thoughts.append(Thought(trace.total_tokens))
    if score is not None:
        view.set_score(trace, len(trace.thoughts) - 1, score)


class Grown:
    """A tree grown at random, and beside it the plain truth: every trace's tokens and scores in full."""

    def __init__(self, seed: int, steps: int) -> None:
        rng = random.Random(seed)
        self.view = TreeView()
        self.tokens: dict[int, list[int]] = {}
        self.scores: dict[int, list[float | None]] = {}
        self.ends: dict[int, list[int]] = {}  # position of each boundary in the whole sequence
        for _ in range(rng.randint(1, 3)):
            self._born(live_root(self.view), [], [], [])
        for _ in range(steps):
            trace = rng.choice(list(self.view.traces.values()))
            if rng.random() < 0.3 and trace.last_scored() is not None:
                at = trace.last_scored()
                assert at is not None
                kept = [i for i, end in enumerate(self.ends[trace.number]) if end <= at.position]
                branch = self.view.add_branch(trace)
                self.view.move(branch, NodeState.LIVE)
                self._born(
                    branch,
                    self.tokens[trace.number][: at.position],
                    [self.scores[trace.number][i] for i in kept],
                    [self.ends[trace.number][i] for i in kept],
                )
            else:
                new = [rng.randrange(50_000) for _ in range(rng.randint(1, 5))]
                score = None if rng.random() < 0.2 else rng.random()
                think(self.view, trace, new, score)
                self.tokens[trace.number] += new
                self.scores[trace.number].append(score)
                self.ends[trace.number].append(len(self.tokens[trace.number]))
                loose = [rng.randrange(50_000) for _ in range(rng.randint(0, 2))]
                self.view.append_tokens(trace, loose)
                self.tokens[trace.number] += loose

    def _born(self, trace: Trace, tokens: list[int], scores: list[float | None], ends: list[int]) -> None:
        self.tokens[trace.number] = list(tokens)
        self.scores[trace.number] = list(scores)
        self.ends[trace.number] = list(ends)


grown = st.builds(Grown, seed=st.integers(0, 10_000), steps=st.integers(0, 60))


@settings(max_examples=80, deadline=None)
@given(grown)
def test_a_trace_reads_as_if_it_had_never_been_shared(tree: Grown) -> None:
    for number, trace in tree.view.traces.items():
        scored = [s for s in tree.scores[number] if s is not None]
        assert trace.sequence() == tree.tokens[number]
        assert trace.total_tokens == len(tree.tokens[number])
        assert trace.scores() == scored
        assert trace.scored == len(scored)
        assert trace.thought_count == len(tree.scores[number])
        if scored:
            assert trace.mean_score == pytest.approx(math.fsum(scored) / len(scored), abs=1e-12)
        else:
            assert trace.mean_score is None
    assert tree.view.generated == sum(t.own_tokens for t in tree.view.traces.values())


@settings(max_examples=40, deadline=None)
@given(grown)
def test_restoring_gives_the_same_tree_to_the_last_bit(tree: Grown) -> None:
    again = TreeView()
    for trace in tree.view.traces.values():
        again.restore(
            Trace(
                number=trace.number,
                parent=again[trace.parent.number] if trace.parent else None,
                branch_position=trace.branch_position,
                state=trace.state,
                tokens=array("i", trace.tokens),
                thoughts=[replace(t) for t in trace.thoughts],
            )
        )
    for number, trace in tree.view.traces.items():
        assert again[number].mean_score == trace.mean_score
        assert again[number].thought_count == trace.thought_count
        assert again[number].sequence() == trace.sequence()
    assert again.thoughts_scored == tree.view.thoughts_scored
    assert again.count(*COUNTING) == tree.view.capacity_count


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_a_branch_starts_with_exactly_its_parents_mean(scores: list[float]) -> None:
    view = TreeView()
    parent = live_root(view)
    for score in scores:
        think(view, parent, [1], score)
    assert view.add_branch(parent).mean_score == parent.mean_score


def test_a_branch_starts_at_the_last_scored_boundary() -> None:
    # given a parent with a third thought whose score is still on its way, and tokens after it
    view = TreeView()
    parent = live_root(view)
    think(view, parent, [1, 2, 3], 0.25)
    think(view, parent, [4, 5], 0.75)
    think(view, parent, [6], None)
    view.append_tokens(parent, [7, 8])

    branch = view.add_branch(parent)
    assert (branch.branch_position, branch.thought_count, branch.mean_score) == (5, 2, 0.5)
    assert branch.sequence() == [1, 2, 3, 4, 5]
    assert (branch.own_tokens, branch.total_tokens) == (0, 5)

    # when the score arrives after all, the branch does not change
    view.set_score(parent, 2, 0.95)
    assert branch.scores() == [0.25, 0.75]
    assert parent.mean_score == pytest.approx(0.65)


@pytest.mark.parametrize("state", [s for s in NodeState if s not in (NodeState.LIVE, NodeState.HELD)])
def test_only_live_and_held_traces_are_branched(state: NodeState) -> None:
    view = TreeView()
    parent = live_root(view)
    think(view, parent, [1], 0.5)
    view.move(parent, state)
    with pytest.raises(IllegalTransitionError, match="a parent is live or held"):
        view.add_branch(parent)
    assert len(view) == 1


def test_a_held_trace_is_branched_where_it_stands() -> None:
    view = TreeView()
    parent = live_root(view)
    think(view, parent, [1, 2, 3], 0.5)
    view.move(parent, NodeState.HELD)
    assert view.add_branch(parent).sequence() == parent.sequence()


def test_path() -> None:
    """Where a trace's tokens lie: three of T1, two of T2, the rest its own."""
    view = TreeView()
    first = live_root(view)
    think(view, first, [1, 2, 3], 0.5)
    second = view.add_branch(first)
    view.move(second, NodeState.LIVE)
    think(view, first, [4], 0.5)
    think(view, second, [5, 6], 0.5)
    view.append_tokens(second, [7])
    third = view.add_branch(second)
    view.move(third, NodeState.LIVE)
    view.append_tokens(third, [8])
    assert first.path() == [(1, 4)]
    assert second.path() == [(1, 3), (2, 6)]
    assert third.path() == [(1, 3), (2, 5), (3, 6)]


def test_short_thoughts_are_merged_with_the_next() -> None:
    view = TreeView()
    parent = live_root(view)
    for tokens in (3, 10, 4, 4, 2, 9):
        think(view, parent, [0] * tokens, 0.5)
    assert parent.merged_thoughts(1) == [(0, 3), (3, 13), (13, 17), (17, 21), (21, 23), (23, 32)]
    assert parent.merged_thoughts(10) == [(0, 13), (13, 23)]
    assert parent.merged_thoughts(9) == [(0, 13), (13, 23), (23, 32)]
    # a branch counts its own
    branch = view.add_branch(parent)
    view.move(branch, NodeState.LIVE)
    think(view, branch, [0] * 12, 0.5)
    assert branch.merged_thoughts(10) == [(32, 44)]


class TestConfidences:
    def test_one_per_token(self) -> None:
        view = TreeView()
        trace = live_root(view)
        view.append_tokens(trace, [1, 2], [0.5, 1.5])
        view.append_tokens(trace, [3], [2.5])
        assert trace.confidences.tolist() == [0.5, 1.5, 2.5]
        with pytest.raises(ValueError, match="node 1: 4 confidences, 5 tokens"):
            view.append_tokens(trace, [4, 5], [1.0])

    def test_the_mean_of_a_thought(self) -> None:
        view = TreeView()
        root = live_root(view)
        view.append_tokens(root, [1, 2, 3, 4], [1.0, 2.0, 4.0, 8.0])
        root.thoughts.append(Thought(2, 0.5))
        assert root.mean_confidence(0, 2) == 1.5
        branch = view.add_branch(root)
        view.append_tokens(branch, [5, 6, 7], [3.0, 5.0, 9.0])
        assert branch.mean_confidence(2, 4) == 4.0
        assert live_root(view).mean_confidence(0, 0) is None

    def test_a_restored_trace_goes_on_with_its_own(self) -> None:
        view = TreeView()
        trace = Trace(1, None, tokens=array("i", range(2)), confidences=array("f", [0.5, 1.5]))
        view.restore(trace)
        view.append_tokens(trace, [3], [2.5])
        assert trace.confidences.tolist() == [0.5, 1.5, 2.5]


def test_a_parent_needs_a_scored_thought_of_its_own() -> None:
    view = TreeView()
    parent = live_root(view)
    think(view, parent, [1], 0.5)
    branch = view.add_branch(parent)
    view.move(branch, NodeState.LIVE)
    think(view, branch, [2], None)
    with pytest.raises(IllegalTransitionError, match="scored thought of its own"):
        view.add_branch(branch)


@pytest.mark.parametrize("score", [-0.01, 1.01, math.nan, math.inf])
def test_a_score_lies_between_0_and_1(score: float) -> None:
    view = TreeView()
    trace = live_root(view)
    think(view, trace, [1], None)
    with pytest.raises(ValueError, match="outside"):
        view.set_score(trace, 0, score)
    assert trace.mean_score is None


def test_scores_come_once_and_in_order() -> None:
    view = TreeView()
    trace = live_root(view)
    for _ in range(3):
        think(view, trace, [1], None)
    view.set_score(trace, 1, 0.5)
    for index in (0, 1):
        with pytest.raises(ValueError, match="twice or out of order"):
            view.set_score(trace, index, 0.5)
    view.set_score(trace, 2, 0.5)
    assert trace.scored == view.thoughts_scored == 2


def test_restoring_keeps_the_order_of_numbers() -> None:
    with pytest.raises(ValueError, match="node 2 restored after 0 nodes"):
        TreeView().restore(Trace(number=2, parent=None))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(NodeState)), max_size=40))
def test_states(moves: list[tuple[int, NodeState]]) -> None:
    """Whatever is asked for, traces walk along allowed edges only, and the index by state follows."""
    view = TreeView()
    truth = {view.add_root().number: NodeState.PENDING for _ in range(5)}
    finished: list[int] = []
    evictions = 0
    for index, to in moves:
        trace = view[index + 1]
        if to in NODE_TRANSITIONS[trace.state]:
            view.move(trace, to)
            truth[trace.number] = to
            evictions += to is NodeState.GHOST
            if to is NodeState.FINISHED:
                finished.append(trace.number)
        else:
            with pytest.raises(IllegalTransitionError):
                view.move(trace, to)
        for state in NodeState:
            numbers = [n for n, s in truth.items() if s is state]
            assert [t.number for t in view.in_state(state)] == sorted(numbers)
            assert view.count(state) == len(numbers)
        assert [t.number for t in view.finished] == finished
        assert [t.number for t in view.counting] == sorted(n for n, s in truth.items() if s in COUNTING)
        assert view.capacity_count == len(view.counting)
    assert sum(t.evictions for t in view.traces.values()) == evictions
    assert [t.finish_order for t in view.finished] == list(range(1, len(finished) + 1))


def test_repr_is_short() -> None:
    view = TreeView()
    trace = live_root(view)
    for _ in range(20):
        think(view, trace, list(range(1000)), 0.5)
        trace = view.add_branch(trace)
        view.move(trace, NodeState.LIVE)
    assert len(repr(trace)) < 500
