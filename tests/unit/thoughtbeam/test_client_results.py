"""Results and traces of any size: whoever asks, and however, reads the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.thoughtbeam.calls import Calls
from tests.unit.thoughtbeam.scripted_service import LOST, ScriptedService, result
from thoughtbeam import _mapping
from thoughtbeam.v1 import reasoning_pb2 as pb

PIECE = 256 * 1024
BLANK_LINES = "So:\n\n\n\n7</think>8\r\n\r\n<think>\n\n</think>\n\nthe answer\n\n"
TEXTS = {
    "blank lines and think tags": BLANK_LINES,
    "only white space": "\n\n \t\n\n",
    "many MiB": BLANK_LINES * 200_000,
    "characters of four bytes": "𝒳é\u2028" * 300_000,
    "nothing": "",
}


def whole(text: str, votes: int = 3) -> pb.Result:
    message = result("t1").result
    message.answer.text = text[:5000]
    message.answer.final_text = text
    del message.votes[:]
    message.votes.extend(pb.Vote(answer=f"{n}{text[:100]}", weight=1 / (n + 1)) for n in range(votes))
    return message


def pieces(message: pb.Result) -> list[Any]:
    raw = message.SerializeToString()
    return [pb.GetResultResponse(data=raw[at : at + PIECE]) for at in range(0, len(raw), PIECE)]


def abridged() -> pb.Result:
    return pb.Result(name="trees/t1", state=pb.TREE_STATE_SUCCEEDED, abridged=True)


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
async def test_every_way_to_a_result_leads_to_the_same_bytes(
    calls: Calls, service: ScriptedService, endpoint: str, text: str
) -> None:
    message = whole(text, votes=4096)
    service.streams = [[pb.ReasonResponse(result=abridged())] for _ in range(2)]
    ended = pb.Tree(name="trees/t1", state=pb.TREE_STATE_SUCCEEDED, result=abridged())
    service.replies = {
        "GetTree": [pb.GetTreeResponse(tree=ended)],
        "GetResult": [pieces(message) for _ in range(4)],
    }

    solved = await calls.call(endpoint, "solve", "6 * 7?", policy="gambit")
    *_, streamed = await calls.stream(endpoint, "6 * 7?", policy="gambit")
    waited = await calls.call(endpoint, "wait", "t1")
    read = await calls.call(endpoint, "result", "t1")

    assert solved == streamed == waited == read == _mapping.result(message)
    assert read.answer.final_text == text
    assert len(read.votes) == 4096
    assert not read.abridged


async def test_a_small_result_comes_with_its_stream(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    message = whole(BLANK_LINES)
    service.streams = [[pb.ReasonResponse(result=message)]]
    service.replies["GetResult"] = [pieces(message)]

    solved = await calls.call(endpoint, "solve", "6 * 7?", policy="gambit")
    assert len(service.requests) == 1

    assert await calls.call(endpoint, "result", "t1") == solved


async def test_a_result_that_breaks_off_is_read_again_from_its_beginning(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    message = whole(TEXTS["many MiB"])
    sent = pieces(message)
    assert len(sent) > 10
    service.replies["GetResult"] = [[*sent[:3], LOST], [LOST], [*sent[:7], LOST], sent]

    assert await calls.call(endpoint, "result", "t1") == _mapping.result(message)


def thoughts(*found: pb.Thought) -> pb.GetTraceResponse:
    return pb.GetTraceResponse(thoughts=pb.Thoughts(thoughts=found))


async def test_a_trace_is_put_together_from_its_parts(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    # given a text whose parts end anywhere, and thoughts that end in bytes
    own = ["one é\n\n", "</think>\n\n", "x\n\n", "and the rest"]
    ends = [len("".join(own[:n]).encode()) for n in (1, 2, 3)]
    node = pb.GetTraceResponse(node=pb.Node(number=7, parent=2))
    texts = [
        pb.GetTraceResponse(text=part) for part in ("o", "ne é\n", "\n</think>\n\nx\n\nand the ", "rest")
    ]
    service.replies["GetTrace"] = [
        [
            node,
            thoughts(
                pb.Thought(position=4, score=0.5, confidence=0.25, text_end=ends[0], node=2),
                pb.Thought(position=8, score=0.0, text_end=ends[1], node=2),
            ),
            thoughts(pb.Thought(position=9, text_end=ends[2], node=7)),
            *texts,
        ]
    ]

    trace = await calls.call(endpoint, "trace", "t1", 7)

    assert (trace.node.number, trace.node.parent) == (7, 2)
    assert trace.text == "".join(own)
    assert [t.text for t in trace.thoughts] == own[:3]
    assert trace.remainder == own[3]
    assert [(t.position, t.score, t.confidence, t.node) for t in trace.thoughts] == [
        (4, 0.5, 0.25, 2),
        (8, 0.0, None, 2),
        (9, None, None, 7),
    ]
    assert service.requests == [pb.GetTraceRequest(name="trees/t1/nodes/7")]


async def test_a_trace_that_breaks_off_is_read_again_from_its_beginning(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    said = [
        pb.GetTraceResponse(node=pb.Node(number=1)),
        thoughts(pb.Thought(position=3, text_end=3, node=1)),
        *(pb.GetTraceResponse(text=text) for text in ("a\n\n", "b")),
    ]
    service.replies["GetTrace"] = [[*said[:count], LOST] for count in range(4)] + [said]

    trace = await calls.call(endpoint, "trace", "t1", 1, own_only=True)

    assert trace.text == "a\n\nb"
    assert [t.text for t in trace.thoughts] == ["a\n\n"]
    assert {r.own_only for r in service.requests} == {True}


@given(st.lists(st.text(st.characters(codec="utf-8")), max_size=8), st.text(st.characters(codec="utf-8")))
def test_thoughts_and_remainder_are_the_text(parts: list[str], rest: str) -> None:
    ends = [len("".join(parts[: n + 1]).encode()) for n in range(len(parts))]
    found = [pb.Thought(position=n, text_end=end) for n, end in enumerate(ends)]

    trace = _mapping.trace(pb.Node(), found, "".join(parts) + rest)

    assert [t.text for t in trace.thoughts] == parts
    assert trace.remainder == rest
