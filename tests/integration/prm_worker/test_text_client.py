"""The scoring client and a scorer that reads texts: what it is sent, and what becomes of its scores."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from decoder_worker.engine.base import HiddenRow
from decoder_worker.engine.scripted_traces import ScriptedTokenizer, text_tokens
from decoder_worker.scoring.client import BoundaryRow, ScoringClient
from decoder_worker.scoring.texts import ThoughtTexts
from decoder_worker.tree_view import Trace, TreeView
from tests.integration.prm_worker.clients import Inbox, client_of
from thoughtbeam.runtime.rpc import start_server
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1 import scoring_pb2_grpc
from tree_store.model import NodeState, Thought

NAN_ROW = HiddenRow(0, np.float32(math.nan).tobytes(), "float32")  # nobody reads it
MESSAGES = [("system", "Count."), ("user", "6 * 7?")]


class Reader(scoring_pb2_grpc.ScorerServiceServicer):
    """Scores a step by its length in hundredths; more than a hundred characters are beyond its context.
    seconds: that a trace takes."""

    def __init__(self) -> None:
        self.calls: list[pb.ScoreTextRequest] = []
        self.seconds = 0.0

    async def GetScorerInfo(self, request: Any, context: Any) -> pb.GetScorerInfoResponse:  # noqa: N802
        return pb.GetScorerInfoResponse(kind="process_reward", max_rows=16, scorer_id="reader")

    async def Score(self, request: Any, context: Any) -> pb.ScoreResponse:  # noqa: N802
        raise AssertionError("it reads texts")

    async def DropTraces(self, request: Any, context: Any) -> pb.DropTracesResponse:  # noqa: N802
        raise AssertionError("it keeps nothing")

    async def ScoreText(self, request: pb.ScoreTextRequest, context: Any) -> pb.ScoreTextResponse:  # noqa: N802
        self.calls.append(request)
        await asyncio.sleep(self.seconds * len(request.traces))
        wanted = [step for trace in request.traces for step in trace.steps[trace.first_step :]]
        scores = [len(step) / 100 if len(step) <= 100 else math.nan for step in wanted]
        data = np.array(scores, "<f4").tobytes()
        tensor = pb.Tensor(dtype=pb.DATA_TYPE_FLOAT32, shape=[len(scores)], data=data)
        return pb.ScoreTextResponse(scores=tensor, mismatch="read elsewhere")


@asynccontextmanager
async def reading() -> AsyncIterator[tuple[Reader, ScoringClient]]:
    reader = Reader()

    def add(server: Any) -> None:
        scoring_pb2_grpc.add_ScorerServiceServicer_to_server(reader, server)

    server = await start_server("127.0.0.1:0", [add], [])
    try:
        async with client_of(f"127.0.0.1:{server.port}") as client:
            await client.info()
            yield reader, client
    finally:
        await server.stop(0)


class Writing:
    """A tree whose thoughts are written by a test."""

    def __init__(self) -> None:
        self.view = TreeView()
        self.texts = ThoughtTexts(MESSAGES, ScriptedTokenizer())

    def root(self) -> Trace:
        trace = self.view.add_root()
        self.view.move(trace, NodeState.LIVE)
        return trace

    def think(self, trace: Trace, text: str) -> BoundaryRow:
        self.view.append_tokens(trace, text_tokens(f"{text}\n\n"))
        trace.thoughts.append(Thought(trace.total_tokens))
        index = len(trace.thoughts) - 1
        first = trace.inherited_thoughts + index
        return BoundaryRow("t", trace.number, index, first, NAN_ROW, trace, self.texts)


async def test_a_trace_is_sent_whole_and_only_what_is_new_is_scored() -> None:
    tree, box = Writing(), Inbox()
    trace = tree.root()
    async with reading() as (reader, client):
        client.submit([tree.think(trace, "one"), tree.think(trace, "")], box.deliver)
        await box.wait_for(2)
        for item in box.received:
            assert item.score is not None
            tree.view.set_score(trace, item.row.thought, item.score)
        branch = tree.view.add_branch(trace)
        client.submit([tree.think(trace, "three"), tree.think(branch, "<extra_0> 3")], box.deliver)
        scored = await box.wait_for(4)
    assert [round(item.score or 0, 2) for item in scored] == [0.03, 0.0, 0.05, 0.11]
    assert {item.mismatch for item in scored} == {"read elsewhere"}
    first, second = reader.calls
    assert [(list(t.steps), t.first_step) for t in first.traces] == [(["one", ""], 0)]
    assert [(t.node, list(t.steps), t.first_step) for t in second.traces] == [
        (1, ["one", "", "three"], 2),
        (2, ["one", "", "<extra_0> 3"], 2),
    ]
    for call in reader.calls:
        for sent in call.traces:
            assert [(m.role, m.content) for m in sent.messages] == MESSAGES


async def test_a_step_beyond_the_context_costs_the_others_nothing() -> None:
    tree, box = Writing(), Inbox()
    trace, other = tree.root(), tree.root()
    async with reading() as (_, client):
        rows = [tree.think(trace, "a"), tree.think(trace, "x" * 101), tree.think(other, "bc")]
        client.submit(rows, box.deliver)
        scored = await box.wait_for(3)
    assert [(item.error, round(item.score or 0, 2)) for item in scored] == [
        ("", 0.01),
        ("STEP_TOO_LONG", 0.0),
        ("", 0.02),
    ]
    assert scored[1].score is None


async def test_long_texts_go_in_several_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder_worker.scoring.calls.CALL_BYTES", 400)
    tree, box = Writing(), Inbox()
    async with reading() as (reader, client):
        rows = [tree.think(tree.root(), letter * 90) for letter in "abcdefgh"]
        client.submit(rows, box.deliver)
        scored = await box.wait_for(8)
    assert [round(item.score or 0, 2) for item in scored] == [0.9] * 8
    assert len(reader.calls) > 3
    assert all(call.ByteSize() <= 500 for call in reader.calls)


async def test_rows_of_a_search_that_began_with_another_scorer_have_no_text() -> None:
    tree, box = Writing(), Inbox()
    trace = tree.root()
    async with reading() as (reader, client):
        new = tree.think(trace, "one")
        old = BoundaryRow("old", 1, 0, 0, NAN_ROW)
        client.submit([old, new], box.deliver)
        scored = await box.wait_for(2)
    assert {item.row.tree_id: item.error for item in scored} == {"old": "SCORER_CHANGED", "t": ""}
    assert len(reader.calls) == 1


async def test_a_scorer_that_needs_longer_than_a_call_may_take_is_asked_for_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("decoder_worker.scoring.prm_link.CALL_TIMEOUT", 1.0)
    tree, box = Writing(), Inbox()
    async with reading() as (reader, client):
        reader.seconds = 0.1
        rows = [tree.think(tree.root(), str(number)) for number in range(16)]
        client.submit(rows, box.deliver)
        scored = await box.wait_for(16, timeout=20)
    assert all(item.score is not None for item in scored)
    assert client.stats.lost == 0
