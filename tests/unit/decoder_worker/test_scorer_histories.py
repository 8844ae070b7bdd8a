"""What a scorer with a history is told of traces: for any tree of branches, as a Score call carries it."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.engine.base import HiddenRow
from decoder_worker.engine.scripted_traces import ScriptedTokenizer, text_tokens
from decoder_worker.engine.vllm_hooks import TOP_TOKENS
from decoder_worker.scoring.calls import Origin, parts, score_rows
from decoder_worker.scoring.confidence import confidence_score
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.scoring.queued import Queued
from decoder_worker.scoring.text_wire import encode_texts
from decoder_worker.scoring.texts import ThoughtTexts
from decoder_worker.scoring.wire import BoundaryRow, encode_request, request_order
from decoder_worker.tree_view import Trace, TreeView
from thoughtbeam.runtime.scorers import CONFIDENCE_TOKENS
from thoughtbeam.v1 import scoring_pb2 as pb
from tree_store.model import NodeState, Thought

ROW = HiddenRow(0, b"\0" * 8, "float16")


class Growth:
    """A tree that grows at random, and beside it the plain list of each trace's scored thoughts."""

    def __init__(self) -> None:
        self.view = TreeView()
        self.scored: dict[int, list[bytes]] = {}
        self.made = 0

    def root(self) -> None:
        trace = self.view.add_root()
        self.view.move(trace, NodeState.LIVE)
        self.scored[trace.number] = []

    def branch(self, parent: Trace) -> None:
        if parent.last_scored() is None:
            return
        trace = self.view.add_branch(parent)
        self.view.move(trace, NodeState.LIVE)
        # up to the parent's last scored thought, so all that it has by now
        self.scored[trace.number] = list(self.scored[parent.number])

    def think(self, trace: Trace, *, scored: bool) -> None:
        self.view.append_tokens(trace, text_tokens(f"{self.made}\n\n"))
        trace.thoughts.append(Thought(trace.total_tokens))
        self.made += 1
        if scored:
            kept = self.made.to_bytes(2, "little")
            self.view.set_score(trace, len(trace.thoughts) - 1, 0.5, kept)
            self.scored[trace.number].append(kept)

    def row(self, trace: Trace, behind: int = 0) -> BoundaryRow:
        index = len(trace.thoughts) - 1 - behind
        first = trace.inherited_thoughts + index
        return BoundaryRow("t", trace.number, index, first, ROW, trace)


@st.composite
def trees(draw: Any) -> Growth:
    growth = Growth()
    growth.root()
    for what in draw(st.lists(st.sampled_from(["root", "branch", "score", "lose"]), max_size=40)):
        traces = list(growth.view.traces.values())
        trace = traces[draw(st.integers(0, len(traces) - 1))]
        if what == "root":
            growth.root()
        elif what == "branch":
            growth.branch(trace)
        else:
            growth.think(trace, scored=what == "score")
    return growth


@given(trees(), st.integers(0, 50))
def test_a_history_is_what_was_scored_inherited_thoughts_first(growth: Growth, first: int) -> None:
    for trace in growth.view.traces.values():
        expected = growth.scored[trace.number]
        assert trace.scored == len(expected)
        assert trace.history(first) == expected[first:]


@given(trees(), st.data())
def test_a_call_says_where_each_trace_goes_on_and_what_it_shares(growth: Growth, data: Any) -> None:
    rows: list[BoundaryRow] = []
    new: dict[int, int] = {}
    for trace in growth.view.traces.values():
        new[trace.number] = data.draw(st.integers(0, 3))
        for _ in range(new[trace.number]):
            growth.think(trace, scored=False)
            if data.draw(st.booleans()):  # one in between that is refused at once and never sent
                growth.think(trace, scored=False)
                rows.append(growth.row(trace, behind=1))
            else:
                rows.append(growth.row(trace))
    if not rows:
        return
    runs = request_order(rows, history=True)
    for run in runs:
        trace = rows[run.rows[0]].trace
        assert trace is not None
        run.history = b"".join(trace.history(min(1, run.first)))
    request = encode_request(rows, runs, "f", "r", history_size=1)

    assert sum(t.rows for t in request.traces) == request.rows.shape[0] == len(rows)
    assert {t.node: t.rows for t in request.traces} == {n: count for n, count in new.items() if count}
    for sent in request.traces:
        trace = growth.view[sent.node]
        scored = growth.scored[sent.node]
        assert sent.first_thought == len(scored)
        assert sent.history.data == b"".join(scored[1:])
        assert sent.HasField("history") == (len(scored) > 1)
        if sent.HasField("history"):
            assert list(sent.history.shape) == [len(scored) - 1, 1]
        assert sent.HasField("parent") == (trace.parent is not None)
        if trace.parent is not None:
            assert sent.parent == trace.parent.number
            shared = growth.scored[trace.parent.number][: sent.fork_thought]
            assert scored[: sent.fork_thought] == shared
            assert sent.fork_thought == trace.inherited_scored


@given(trees())
def test_a_text_scorer_reads_all_thoughts_of_a_trace_once_decoded_or_again(growth: Growth) -> None:
    texts = ThoughtTexts([("user", "6 * 7?")], ScriptedTokenizer())
    for again in (False, True):
        for trace in growth.view.traces.values():
            if not trace.thoughts:
                continue
            row = BoundaryRow("t", trace.number, len(trace.thoughts) - 1, trace.thought_count - 1, ROW, trace)
            row = BoundaryRow(**{f: getattr(row, f) for f in row.__dataclass_fields__} | {"texts": texts})
            [message] = encode_texts([row], request_order([row]))
            whole = ScriptedTokenizer().decode(trace.sequence())
            assert list(message.steps) == whole.split("\n\n")[:-1]
            assert message.first_step == trace.thought_count - 1
            assert [(m.role, m.content) for m in message.messages] == [("user", "6 * 7?")]
            if again:
                texts.drop(trace.number)


def test_a_thought_without_text_is_a_step_of_its_own() -> None:
    growth = Growth()
    growth.root()
    trace = growth.view[1]
    for text in ("a\n\n", "\n\n", "b c\n\n"):
        growth.view.append_tokens(trace, text_tokens(text))
        trace.thoughts.append(Thought(trace.total_tokens))
    assert ThoughtTexts([], ScriptedTokenizer()).steps(trace, 3) == ["a", "", "b c"]


@given(st.lists(st.integers(1, 100), max_size=30))
def test_no_call_is_above_its_size_unless_one_trace_is(
    sizes: list[int],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("decoder_worker.scoring.calls.CALL_BYTES", 64)
        found = list(parts(sizes, lambda size: size))
    assert [size for part in found for size in part] == sizes
    assert all(sum(part) <= 64 or len(part) == 1 for part in found)
    # and none could have been joined with the next
    assert all(sum(one) + two[0] > 64 for one, two in pairwise(found))


def test_the_score_of_a_confidence_is_that_of_the_formula() -> None:
    assert TOP_TOKENS == CONFIDENCE_TOKENS == 20
    assert confidence_score(math.log(20)) == 0.0
    assert confidence_score(2 * math.log(20)) == pytest.approx(0.5)
    assert confidence_score(0.0) == 0.0  # of a thought whose tokens have none
    confidences = np.linspace(math.log(20), 80, 50)
    scores = [confidence_score(float(c)) for c in confidences]
    assert scores == sorted(scores)
    assert all(0 <= score < 1 for score in scores)


class Forgetful:
    """In the place of a prm worker whose memory is short: with each answer it has less of a trace."""

    def __init__(self, *known: int) -> None:
        self.known = list(known)
        self.asked: list[int] = []

    async def Score(self, request: pb.ScoreRequest, timeout: float) -> pb.ScoreResponse:  # noqa: N802
        (trace,) = request.traces
        sent = len(trace.history.data) // 2
        known = self.known.pop(0) if self.known else 0
        missing = known + sent < trace.first_thought
        self.asked.append(sent)
        values = np.full(trace.rows, math.nan if missing else 0.5, "<f4")
        return pb.ScoreResponse(
            scores=pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, shape=[trace.rows], data=values.tobytes()),
            projected=pb.Tensor(dtype=pb.DATA_TYPE_FLOAT16, shape=[trace.rows, 1], data=b"\0\0" * trace.rows),
            need_history=[pb.NeedHistory(trace=0, from_thought=known)] if missing else [],
        )


@pytest.mark.parametrize("known", [(9,), (5,), (0,), (5, 0), (7, 4, 0), (8, 7, 6, 5)])
async def test_whatever_is_forgotten_meanwhile_a_trace_is_scored_in_the_end(known: tuple[int, ...]) -> None:
    growth = Growth()
    growth.root()
    trace = growth.view[1]
    for _ in range(9):
        growth.think(trace, scored=True)
    growth.think(trace, scored=False)
    entry = Queued(growth.row(trace), lambda scored: None, 0.0)
    stub: Any = Forgetful(*known)
    scorer = ScorerInfo("sequence", history_size=1)
    assert await score_rows(stub, scorer, Origin("f", "r"), [entry], 1.0, lambda sent: None)
    assert entry.score == 0.5
    assert len(stub.asked) <= 3
