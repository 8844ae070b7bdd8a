"""Results and traces of any size: bounded in a message, whole in a stream, the same wherever read."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from gateway.reading import NODES_PAGE_BYTES
from gateway.results import MAX_BYTES
from tests.integration.gateway.harness import PATIENCE, Gateway, refused, request
from tests.integration.gateway.scripted_worker import LIVE, scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import Batch, Failure, NodeChange, NodeState, Outcome, Thought, TreeState, VoteRecord

THINKING = "so </think> it is\n\n\n\n42 €\n\n"
# 256 traces with answers of 60,000 words each: 46 MB
LARGE = Outcome(
    "a€ " * 60_000,
    1,
    256.0,
    1 / 256,
    THINKING + "b" * 200_000,
    tuple(VoteRecord(f"{n} " * 60_000, 1.0, (n,)) for n in range(1, 257)),
    ended_by="tokens",
)
# shorter than that, but above what a list shows
MIDDLE = Outcome("42", 1, 2.0, 1.0, THINKING * 100, (VoteRecord("42", 2.0, tuple(range(1, 65))),))
SMALL = Outcome("42", 1, 1.0, 1.0, THINKING, (VoteRecord("42", 1.0, (1,)),))


async def ended(gateway: Gateway, outcome: Outcome) -> tuple[str, pb.Result]:
    """A tree with this outcome; its id, and the result that the call of Reason got."""
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        await (await worker.take()).finish(TreeState.SUCCEEDED, outcome=outcome)
        answer = await answering
    assert answer.result is not None
    return asked.request_id, answer.result


async def pieces(call: Any) -> list[Any]:
    """All messages of a streaming call."""
    found = []
    async with asyncio.timeout(PATIENCE):
        while (message := await call.read()) is not grpc.aio.EOF:
            found.append(message)
    return found


async def whole(gateway: Gateway, tree_id: str) -> pb.Result:
    """The result as GetResult gives it."""
    got = await pieces(gateway.stub.GetResult(pb.GetResultRequest(name=f"trees/{tree_id}")))
    assert all(0 < len(piece.data) <= MAX_BYTES for piece in got)
    return pb.Result.FromString(b"".join(piece.data for piece in got))


@pytest.mark.parametrize("outcome", [SMALL, MIDDLE, LARGE], ids=["small", "middle", "large"])
async def test_a_result_is_the_same_wherever_it_is_read(gateway: Gateway, outcome: Outcome) -> None:
    tree_id, streamed = await ended(gateway, outcome)
    tree = await gateway.get(tree_id)
    [listed] = (await gateway.stub.ListTrees(pb.ListTreesRequest())).trees
    result = await whole(gateway, tree_id)

    # all of it, byte by byte
    assert (result.answer.text, result.answer.final_text) == (outcome.answer, outcome.final_text)
    assert [(v.answer, v.weight, tuple(v.nodes)) for v in result.votes] == [
        (v.answer, v.weight, v.nodes) for v in outcome.votes
    ]
    assert not result.abridged
    # what is in a message is the same in each, bounded, and says whether it is all
    assert tree.result == streamed
    assert streamed.ByteSize() <= MAX_BYTES
    assert streamed.abridged is (outcome is LARGE)
    if not streamed.abridged:
        assert streamed == result
    assert result.answer.text.startswith(streamed.answer.text)
    assert result.answer.final_text.startswith(streamed.answer.final_text)
    # a list shows a little, and no votes
    assert listed.result.abridged
    assert not listed.result.votes
    assert len((listed.result.answer.text + listed.result.answer.final_text).encode()) <= 1024
    for shown in (streamed, listed.result):
        for field in ("name", "state", "answer_state", "counts", "usage", "ended_by", "elapsed", "queued"):
            assert getattr(shown, field) == getattr(result, field), field
        assert (shown.answer.node, shown.answer.weight) == (result.answer.node, result.answer.weight)


async def test_a_result_comes_with_the_end_of_its_tree(gateway: Gateway) -> None:
    asked, failed, cancelled = request(), request(), request()
    for one in (asked, failed, cancelled):
        await gateway.stub.Submit(pb.SubmitRequest(search=one.search, request_id=one.request_id))
    epoch = (await gateway.store.assign(failed.request_id, "test", 60)).epoch
    await gateway.store.fail(failed.request_id, epoch, Failure(13, "SEARCH_FAILED", "broke"))
    await gateway.store.request_cancel(cancelled.request_id)

    early = await refused(whole(gateway, asked.request_id))
    none = await refused(whole(gateway, failed.request_id))

    for error, reason in ((early, "TREE_NOT_ENDED"), (none, "NO_RESULT")):
        assert (error.code, error.reason) == (grpc.StatusCode.FAILED_PRECONDITION, reason)
    assert await whole(gateway, cancelled.request_id) == (await gateway.get(cancelled.request_id)).result


def read_trace(parts: list[pb.GetTraceResponse]) -> tuple[pb.Node, list[pb.Thought], str]:
    """Node, thoughts and text, in this order or not at all."""
    kinds = [str(part.WhichOneof("part")) for part in parts]
    assert kinds == sorted(kinds, key=["node", "thoughts", "text"].index)
    assert kinds.count("node") == 1
    assert all(len(part.text.encode()) <= 64 * 1024 for part in parts)
    thoughts = [thought for part in parts for thought in part.thoughts.thoughts]
    return parts[0].node, thoughts, "".join(part.text for part in parts)


async def test_a_trace_is_read_with_what_it_inherited_or_without(gateway: Gateway) -> None:
    # given a trace of 3,000 thoughts and half a megabyte, and one that branches off after 2,500 of them
    asked = request()
    name = f"trees/{asked.request_id}/nodes"
    await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
    epoch = (await gateway.store.assign(asked.request_id, "test", 3600)).epoch
    steps = [f"{n} is € {'x' * 150}\n\n" for n in range(3000)]
    ends = [0]
    for step in steps:
        ends.append(ends[-1] + len(step.encode()))
    root = NodeChange(
        1,
        None,
        (*LIVE, NodeState.FINISHED),
        text="".join(steps) + "42",
        thoughts=tuple(Thought(n * 10, n / 3000, text_end=ends[n]) for n in range(1, 3001)),
    )
    own = "another way </think>\n\n"
    branch = NodeChange(
        2,
        None,
        LIVE,
        parent=1,
        branch_position=25_000,
        text=own,
        thoughts=(Thought(25_003, None, text_end=len(own)),),
    )
    await gateway.store.commit(asked.request_id, epoch, 1, Batch(nodes=(root, branch)))

    async def get(number: int, *, own_only: bool = False) -> tuple[pb.Node, list[pb.Thought], str]:
        get = pb.GetTraceRequest(name=f"{name}/{number}", own_only=own_only)
        return read_trace(await pieces(gateway.stub.GetTrace(get)))

    node, thoughts, text = await get(1)
    assert node == (await gateway.stub.ListNodes(pb.ListNodesRequest(parent=name[:-6]))).nodes[0]
    assert text == "".join(steps) + "42"
    assert [thought.text_end for thought in thoughts] == ends[1:]
    assert {thought.node for thought in thoughts} == {1}

    node, thoughts, text = await get(2)
    assert (node.number, node.parent) == (2, 1)
    assert text == "".join(steps[:2500]) + own
    assert [thought.node for thought in thoughts] == [1] * 2500 + [2]
    assert [thought.position for thought in thoughts] == [*range(10, 25_001, 10), 25_003]
    assert thoughts[-1] == pb.Thought(position=25_003, text_end=ends[2500] + len(own), node=2)
    assert thoughts[0].score == pytest.approx(1 / 3000)

    node, thoughts, text = await get(2, own_only=True)
    assert text == own
    assert thoughts == [pb.Thought(position=25_003, text_end=len(own), node=2)]


async def test_nodes_with_answers_of_any_size_come_in_pages_of_bounded_size(gateway: Gateway) -> None:
    # given 250 traces with answers of a quarter of a MiB each: too much for one message
    asked = request()
    await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
    epoch = (await gateway.store.assign(asked.request_id, "test", 3600)).epoch
    path = (*LIVE, NodeState.FINISHED)
    answers = [f"{n} €" + "x" * (256 * 1024 if n > 10 else 0) for n in range(1, 261)]
    # one of them above the bound of a page by itself
    answers[99] = "x" * (3 * NODES_PAGE_BYTES)
    for n, answer in enumerate(answers, 1):
        node = NodeChange(n, None, path, fields={"answer": answer})
        await gateway.store.commit(asked.request_id, epoch, n, Batch(nodes=(node,)))

    asking = pb.ListNodesRequest(parent=f"trees/{asked.request_id}", page_size=1000)
    pages = [await gateway.stub.ListNodes(asking)]
    while token := pages[-1].next_page_token:
        pages.append(
            await gateway.stub.ListNodes(pb.ListNodesRequest(parent=asking.parent, page_token=token))
        )

    # then each comes once and whole, and no page is larger than it has to be
    assert [node.answer for page in pages for node in page.nodes] == answers
    assert [node.number for page in pages for node in page.nodes] == list(range(1, len(answers) + 1))
    assert len(pages[0].nodes) > 10
    for page in pages:
        assert page.ByteSize() <= NODES_PAGE_BYTES + 1024 or len(page.nodes) == 1


async def test_a_trace_without_a_thought_or_text_is_its_node(gateway: Gateway) -> None:
    asked = request()
    await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
    epoch = (await gateway.store.assign(asked.request_id, "test", 3600)).epoch
    await gateway.store.commit(asked.request_id, epoch, 1, Batch(nodes=(NodeChange(1, None, LIVE),)))

    name = f"trees/{asked.request_id}/nodes/1"
    [part] = await pieces(gateway.stub.GetTrace(pb.GetTraceRequest(name=name)))

    assert part.node.name == name
