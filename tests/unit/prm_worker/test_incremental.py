"""The sequence scorer as it is served: whatever is forked, dropped, evicted or lost, scores are those of the
whole trace computed at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prm_worker.scorers.base import Float16Array, Float32Array, Scored, TracePart
from prm_worker.scorers.incremental import SequenceScorer
from prm_worker.scorers.sequence import SequenceNet, net_of
from tests.unit.prm_worker.weights import sequence_scorer, sequence_weights

HIDDEN = 24
WIDTH = 32
# How far an answer may be from full computation, by how keys and values are kept.
TOLERANCE = {"float16": 1e-3, "float32": 1e-5}


@dataclass
class Trace:
    """What a decoder worker knows of a trace: its rows, and the projected rows that came back."""

    node: int
    rows: list[Tensor]
    projected: list[Float16Array]
    parent: int | None = None
    fork: int = 0


@dataclass
class Worker:
    """A decoder worker, in so far as the scorer sees one; checks every score that it gets."""

    scorer: SequenceScorer
    net: SequenceNet
    tolerance: float
    generator: torch.Generator
    traces: dict[tuple[str, int], Trace] = field(default_factory=dict)
    told: int = 0  # how often the scorer wanted history

    def row(self) -> Tensor:
        return torch.randn(HIDDEN, generator=self.generator)

    def root(self, tree: str) -> Trace:
        return self._add(tree, Trace(self._number(tree), [], []))

    def branch(self, tree: str, of: Trace, fork: int) -> Trace:
        shared = of.rows[:fork], of.projected[:fork]
        return self._add(tree, Trace(self._number(tree), *shared, of.node, fork))

    def score(self, wanted: Sequence[tuple[str, Trace, int]]) -> None:
        """Sends so many new thoughts of each trace in one call."""
        parts, rows = [], []
        for tree, trace, count in wanted:
            new = [self.row() for _ in range(count)]
            parts.append(self._part(tree, trace, count, len(trace.rows)))
            trace.rows += new
            rows += new
        projected = self._settle(parts, torch.stack(rows).numpy())
        starts = np.cumsum([0, *(part.rows for part in parts)])
        for start, (_, trace, count) in zip(starts, wanted, strict=False):
            trace.projected += list(projected[start : start + count])

    def repeat(self, tree: str, trace: Trace, count: int) -> None:
        """Sends the last thoughts of a trace again, as after a lost reply."""
        count = min(count, len(trace.rows))
        if count:
            part = self._part(tree, trace, count, len(trace.rows) - count)
            self._settle([part], torch.stack(trace.rows[-count:]).numpy())

    def _settle(self, parts: list[TracePart], rows: Float32Array) -> Float16Array:
        """Calls until every row has a score, sending history where it is wanted, and checks all of them."""
        scores = np.full(len(rows), np.nan, np.float32)
        projected = np.zeros((len(rows), WIDTH), np.float16)
        starts = np.cumsum([0, *(part.rows for part in parts)])
        places = [np.arange(start, start + part.rows) for start, part in zip(starts, parts, strict=False)]
        open_parts = list(range(len(parts)))
        for _ in range(4):
            chosen = np.concatenate([places[index] for index in open_parts])
            scored = self.scorer.score_parts(rows[chosen], [parts[index] for index in open_parts])
            self._take(scored, chosen, scores, projected)
            for place, first in scored.need_history.items():
                part = parts[open_parts[place]]
                assert first < part.first
                known = self.traces[part.tree_id, part.node].projected
                parts[open_parts[place]] = replace(part, history=np.array(known[first : part.first]))
            self.told += len(scored.need_history)
            open_parts = [open_parts[place] for place in scored.need_history]
            if not open_parts:
                break
        assert not open_parts, "history was wanted again and again"
        self._check(parts, scores, projected)
        return projected

    def _check(self, parts: Sequence[TracePart], scores: Float32Array, projected: Float16Array) -> None:
        wholes = [torch.stack(self.traces[p.tree_id, p.node].rows[: p.first + p.rows]) for p in parts]
        lengths = torch.tensor([len(whole) for whole in wholes])
        padded = nn.utils.rnn.pad_sequence(wholes, batch_first=True)
        right = torch.sigmoid(self.net(padded, lengths)).numpy()
        kept = self.net.project(padded).numpy()
        wanted = [(row, t) for row, p in enumerate(parts) for t in range(p.first, p.first + p.rows)]
        rows, thoughts = np.array(wanted).T
        np.testing.assert_allclose(scores, right[rows, thoughts], rtol=0, atol=self.tolerance)
        np.testing.assert_array_equal(projected, kept[rows, thoughts])

    def _take(
        self, scored: Scored, chosen: np.ndarray, scores: Float32Array, projected: Float16Array
    ) -> None:
        assert scored.projected is not None
        got = ~np.isnan(scored.scores)
        assert not scored.projected[~got].any()
        scores[chosen[got]] = scored.scores[got]
        projected[chosen[got]] = scored.projected[got]

    def _part(self, tree: str, trace: Trace, count: int, first: int) -> TracePart:
        return TracePart(tree, trace.node, first, count, trace.parent, trace.fork)

    def _number(self, tree: str) -> int:
        return sum(of == tree for of, _ in self.traces)

    def _add(self, tree: str, trace: Trace) -> Trace:
        self.traces[tree, trace.node] = trace
        return trace


def check_bookkeeping(scorer: SequenceScorer) -> None:
    """Every slot is free or listed by as many traces as it counts; the bound holds."""
    cache = scorer.cache
    counted = np.zeros(cache.size, int)
    for slots in cache._traces.values():
        assert len(set(slots.tolist())) == len(slots)
        counted[slots] += 1
    np.testing.assert_array_equal(counted, cache._references)
    free = cache._free[: cache._free_count]
    assert sorted(free.tolist()) == np.flatnonzero(counted == 0).tolist()
    assert cache._listed == counted.sum() <= 8 * cache.size
    assert {key[0] for key in cache._traces} == set(cache._nodes)
    assert sum(map(len, cache._nodes.values())) == len(cache)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small matrices gain nothing by more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


WEIGHTS = {layers: sequence_weights(HIDDEN, WIDTH, layers) for layers in (1, 2)}


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), cache_dtype=st.sampled_from(sorted(TOLERANCE)), layers=st.sampled_from([1, 1, 2]))
def test_incremental_scores_are_those_of_full_computation(
    data: st.DataObject, cache_dtype: str, layers: int
) -> None:
    thoughts = data.draw(st.sampled_from([12, 40, 400]), "thoughts that the cache has room for")
    bytes_each = layers * 2 * WIDTH * (2 if cache_dtype == "float16" else 4)
    scorer = SequenceScorer(WEIGHTS[layers], cache_bytes=thoughts * bytes_each, cache_dtype=cache_dtype)
    seed = data.draw(st.integers(0, 2**31), "seed")
    worker = Worker(
        scorer, net_of(WEIGHTS[layers]), TOLERANCE[cache_dtype], torch.Generator().manual_seed(seed)
    )
    trees = ("a", "b")
    for tree in trees:
        worker.root(tree)
    with torch.inference_mode():
        for _ in range(data.draw(st.integers(1, 12), "steps")):
            tree = data.draw(st.sampled_from(trees))
            own = [trace for (of, _), trace in worker.traces.items() if of == tree]
            trace = data.draw(st.sampled_from(own))
            step = data.draw(
                st.sampled_from(["score", "score", "score", "branch", "repeat", "drop", "lose", "twice"])
            )
            if step == "score":
                everybody = [
                    (of, one, data.draw(st.integers(1, 3)))
                    for (of, _), one in worker.traces.items()
                    if len(one.rows) + 3 <= scorer.max_thoughts and data.draw(st.booleans())
                ]
                if everybody:
                    worker.score(everybody)
            elif step == "branch":
                worker.branch(tree, trace, data.draw(st.integers(0, len(trace.rows))))
            elif step == "repeat":
                worker.repeat(tree, trace, data.draw(st.integers(1, 3)))
            elif step == "drop":
                scorer.drop(tree, data.draw(st.sampled_from([[], [trace.node]])))
            elif step == "lose":  # another prm worker, which knows nothing
                for name in trees:
                    scorer.drop(name, [])
            elif len(trace.rows) + 2 <= scorer.max_thoughts:
                # two calls of one trace, and one of a branch of it, in one pass
                worker.score([(tree, trace, 1), (tree, trace, 1)])
            check_bookkeeping(scorer)


@pytest.mark.parametrize("layers", [1, 2])
def test_a_thought_that_is_replaced_in_the_same_pass_has_the_score_of_its_own_row(layers: int) -> None:
    """As after a lost reply, when the first call still waits; the trace goes on from the later one."""
    scorer = SequenceScorer(WEIGHTS[layers], cache_dtype="float32")
    net, rows = net_of(WEIGHTS[layers]), some_rows(6)
    scorer.score_parts(rows[:2], [TracePart("t", 0, 0, 2)])
    branch = TracePart("t", 1, 2, 1, 0, 2)

    parts = [TracePart("t", 0, 2, 1), branch, TracePart("t", 0, 2, 1), TracePart("t", 0, 3, 1)]
    scored = scorer.score_parts(rows[2:], parts)

    traces = torch.from_numpy(np.stack([rows[[0, 1, last, 5]] for last in (2, 3, 4)]))
    with torch.inference_mode():
        right = torch.sigmoid(net(traces, torch.tensor([4, 4, 4]))).numpy()
    wanted = [*right[:, 2], right[2, 3]]
    np.testing.assert_allclose(scored.scores, wanted, rtol=0, atol=1e-5)


def test_of_more_history_than_is_needed_the_end_is_taken() -> None:
    scorer, roomy = (sequence_scorer(HIDDEN, WIDTH, cache_dtype="float32") for _ in range(2))
    rows = some_rows(10)
    known = scorer.score_parts(rows[:9], [TracePart("t", 0, 0, 9)])
    right = scorer.score_parts(rows[9:], [TracePart("t", 0, 9, 1)])
    for have in (0, 4, 9):
        roomy.drop("t", [])
        if have:
            roomy.score_parts(rows[:have], [TracePart("t", 0, 0, have)])
        scored = roomy.score_parts(rows[9:], [TracePart("t", 0, 9, 1, history=known.projected)])
        np.testing.assert_allclose(scored.scores, right.scores, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cache_dtype", sorted(TOLERANCE))
def test_long_traces_of_the_default_size(cache_dtype: str) -> None:
    """300 thoughts, a branch of each trace in the middle, all caches lost once: as by full computation."""
    hidden, lengths = 64, (300, 299, 3)
    weights = sequence_weights(hidden)
    scorer, net = SequenceScorer(weights, cache_dtype=cache_dtype), net_of(weights)
    rows = torch.randn(len(lengths), 300, hidden, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        right = torch.sigmoid(net(rows, torch.tensor(lengths))).numpy()
        history = net.project(rows).numpy().astype(np.float16)

    for node, length in enumerate(lengths):
        first = scorer.score_parts(rows[node, : length - 2].numpy(), [TracePart("t", node, 0, length - 2)])
        np.testing.assert_allclose(
            first.scores, right[node, : length - 2], rtol=0, atol=TOLERANCE[cache_dtype]
        )
    last = np.stack([rows[node, length - 1].numpy() for node, length in enumerate(lengths)])
    before = np.stack([rows[node, length - 2].numpy() for node, length in enumerate(lengths)])
    branches = [TracePart("t", 10 + n, length - 2, 1, n, length - 2) for n, length in enumerate(lengths)]
    assert not scorer.score_parts(before, branches).need_history
    ends = [TracePart("t", 10 + n, length - 1, 1, n, length - 2) for n, length in enumerate(lengths)]
    known = scorer.score_parts(last, ends)
    scorer.drop("t", [])
    lost = scorer.score_parts(last, ends)
    assert lost.need_history == {0: 0, 1: 0, 2: 0}
    restored = scorer.score_parts(
        last, [replace(part, history=history[n, : part.first]) for n, part in enumerate(ends)]
    )

    wanted = [right[node, length - 1] for node, length in enumerate(lengths)]
    for scored in (known, restored):
        np.testing.assert_allclose(scored.scores, wanted, rtol=0, atol=TOLERANCE[cache_dtype])


def some_rows(count: int, seed: int = 0) -> Float32Array:
    return np.random.default_rng(seed).normal(size=(count, HIDDEN)).astype(np.float32)


def test_a_branch_costs_its_own_thoughts_only() -> None:
    scorer = sequence_scorer(HIDDEN, WIDTH)
    scorer.score_parts(some_rows(50), [TracePart("t", 0, 0, 50)])
    parts = [TracePart("t", node, 40, 1, 0, 40) for node in range(1, 11)]

    assert not scorer.score_parts(some_rows(10, seed=1), parts).need_history

    assert scorer.cache.used == 60
    scorer.drop("t", [0])
    assert scorer.cache.used == 50  # the ten thoughts that only the dropped trace had are free
    scorer.drop("t", [])
    assert scorer.cache.used == 0


def test_what_was_not_heard_of_for_the_longest_time_is_forgotten_first() -> None:
    scorer = sequence_scorer(HIDDEN, WIDTH, thoughts=30)
    for node in range(3):
        scorer.score_parts(some_rows(10), [TracePart("t", node, 0, 10)])
    scorer.score_parts(some_rows(1), [TracePart("t", 0, 9, 1)])  # the same thought again

    scorer.score_parts(some_rows(5), [TracePart("other", 0, 0, 5)])

    known = [node for node in range(3) if len(scorer.cache.slots(("t", node)))]
    assert known == [0, 2]
    assert scorer.cache.evicted == 1
    assert scorer.cache.used == 25


def test_more_than_the_cache_holds_is_scored_in_one_call_all_the_same() -> None:
    scorer = sequence_scorer(HIDDEN, WIDTH, thoughts=20, cache_dtype="float32")
    roomy = sequence_scorer(HIDDEN, WIDTH, thoughts=1000, cache_dtype="float32")
    rows, parts = some_rows(150), [TracePart("t", node, 0, 15) for node in range(10)]

    scored = scorer.score_parts(rows, parts)

    np.testing.assert_allclose(scored.scores, roomy.score_parts(rows, parts).scores, rtol=0, atol=1e-5)
    assert scorer.cache.used <= 20


def test_a_cache_takes_no_more_memory_than_it_was_given() -> None:
    for cache_dtype, size in (("float16", 2), ("float32", 4)):
        scorer = SequenceScorer(WEIGHTS[2], cache_bytes=2**20, cache_dtype=cache_dtype)
        held = sum(pool.numel() * pool.element_size() for pool in scorer._pools)
        assert 0.99 * 2**20 < held <= 2**20
        assert scorer.max_thoughts == 2**20 // (2 * 2 * WIDTH * size)
    with pytest.raises(ValueError, match="no room for one thought"):
        SequenceScorer(WEIGHTS[1], cache_bytes=100)


def test_a_trace_longer_than_the_cache_is_refused() -> None:
    scorer = sequence_scorer(HIDDEN, WIDTH, thoughts=20)
    with pytest.raises(ValueError, match="21 thoughts in a trace; there may be 20"):
        scorer.score_parts(some_rows(21), [TracePart("t", 0, 0, 21)])


def test_a_row_that_overflows_is_left_out_and_costs_the_others_nothing() -> None:
    weights = {**WEIGHTS[1], "w_in.bias": WEIGHTS[1]["w_in.bias"].clone()}
    weights["w_in.weight"] = WEIGHTS[1]["w_in.weight"] * 1e5
    scorer = SequenceScorer(weights)
    rows = some_rows(4)
    rows[[0, 1, 3]] = 0.5  # without variance, so that the weights meet zeros

    scored = scorer.score_parts(
        rows, [TracePart("t", 0, 0, 1), TracePart("t", 1, 0, 2), TracePart("t", 2, 0, 1)]
    )

    assert np.isnan(scored.scores).tolist() == [False, False, True, False]
    assert not scored.need_history
    assert [len(scorer.cache.slots(("t", node))) for node in range(3)] == [1, 0, 1]
    again = scorer.score_parts(rows[1:2], [TracePart("t", 1, 0, 1)])
    assert again.scores[0] == pytest.approx(scored.scores[0], abs=1e-6)


def test_a_pass_that_breaks_leaves_nothing_half_done(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = sequence_scorer(HIDDEN, WIDTH)
    scorer.score_parts(some_rows(2), [TracePart("t", 0, 0, 1), TracePart("t", 1, 0, 1)])
    with monkeypatch.context() as patch:
        patch.setattr(scorer._net, "head", lambda z: (_ for _ in ()).throw(RuntimeError("out of memory")))
        with pytest.raises(RuntimeError, match="out of memory"):
            scorer.score_parts(some_rows(1), [TracePart("t", 0, 1, 1)])

    scored = scorer.score_parts(some_rows(2), [TracePart("t", 0, 1, 1), TracePart("t", 1, 1, 1)])

    assert scored.need_history == {0: 0}
    check_bookkeeping(scorer)


def test_rows_of_no_trace_are_first_thoughts_and_nothing_of_them_is_kept() -> None:
    scorer = sequence_scorer(HIDDEN, WIDTH, cache_dtype="float32")
    rows = some_rows(5)

    alone = scorer.score(rows)

    assert len(scorer.cache) == 0
    first = scorer.score_parts(rows, [TracePart("t", node, 0, 1) for node in range(5)])
    np.testing.assert_allclose(alone, first.scores, rtol=0, atol=1e-6)
