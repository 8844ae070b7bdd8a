"""Reason: from a question to a result, over real channels, a real store and a scripted worker."""

from __future__ import annotations

import asyncio
import dataclasses

import grpc
import pytest

from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    Gateway,
    is_state,
    queue_shrinks_to,
    reaches,
    read,
    read_until,
    request,
    running_gateway,
)
from tests.integration.gateway.scripted_worker import LIVE, scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import Batch, Failure, NodeChange, NodeState, Outcome, TreeState


async def test_a_search_from_question_to_result(gateway: Gateway) -> None:
    asked = request(parameters={"C": 2, "K": 1}, seed=7, cancel_on_disconnect=True)
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await gateway.knows_policies()
        answering = asyncio.create_task(gateway.ask(asked))
        await worker.grant()
        search = await worker.take()
        await search.long_search()
        answer = await answering

    # the worker got what the client sent
    assert (search.tree_id, search.epoch, search.search) == (asked.request_id, 1, asked.search)
    # the feed is the stored one: whole, and in order
    assert [e.event_id for e in answer.events] == [
        e.event_id for e in await gateway.store.events(search.tree_id)
    ]
    kinds = [event.WhichOneof("kind") for event in answer.events]
    assert kinds == ["tree", "tree", *["node"] * 7, "round", "progress", "node", "node", "tree"]
    assert [e.tree.state for e in answer.events if e.HasField("tree")] == [
        pb.TREE_STATE_QUEUED,
        pb.TREE_STATE_RUNNING,
        pb.TREE_STATE_SUCCEEDED,
    ]
    nodes = [event.node for event in answer.events if event.HasField("node")]
    assert nodes[0] == pb.NodeTransition(node=1, to=pb.NODE_STATE_PENDING)
    assert nodes[5] == pb.NodeTransition(node=3, to=pb.NODE_STATE_PENDING, parent=2)
    rounds = [event.round for event in answer.events if event.HasField("round")]
    assert rounds == [
        pb.Round(number=1, thoughts=2, capacity_count=2, live=2, kv_use=0.5, pruned=[1], branched=[2])
    ]
    # the result is what is stored
    assert answer.error is None
    assert answer.result == (await gateway.get(search.tree_id)).result
    assert answer.result is not None
    assert (answer.result.name, answer.result.answer_state) == (
        f"trees/{search.tree_id}",
        pb.ANSWER_STATE_ANSWERED,
    )
    assert answer.result.answer == pb.Answer(text="42", weight=1.5, share=1.0, node=2, final_text="It is 42.")
    assert list(answer.result.votes) == [pb.Vote(answer="42", weight=1.5, nodes=[2, 3])]
    assert (answer.result.counts.nodes, answer.result.counts.branches, answer.result.counts.rounds) == (
        3,
        1,
        1,
    )
    assert (answer.result.usage.generated, answer.result.policy) == (9, "gambit")


async def test_no_answer_is_a_stated_outcome(gateway: Gateway) -> None:
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(request()))
        await (await worker.take()).finish(TreeState.SUCCEEDED, outcome=Outcome(None, ended_by="tokens"))
        result = (await answering).result

    assert result is not None
    assert (result.answer_state, result.ended_by) == (pb.ANSWER_STATE_NO_ANSWER, "tokens")
    assert not result.HasField("answer")


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (
            Failure(3, "INVALID_FIELD", "bad", (("search.parameters.K", "at most C / 2 = 1, is 2"),)),
            grpc.StatusCode.INVALID_ARGUMENT,
        ),
        (Failure(9, "NO_SCORER", "train one"), grpc.StatusCode.FAILED_PRECONDITION),
        (Failure(4711, "ODD", "no such code"), grpc.StatusCode.UNKNOWN),
    ],
    ids=lambda value: value.reason if isinstance(value, Failure) else "",
)
async def test_a_call_ends_as_its_tree_failed(
    gateway: Gateway, failure: Failure, code: grpc.StatusCode
) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        await (await worker.take()).finish(TreeState.FAILED, failure=failure)
        answer = await answering
    tree = await gateway.get(asked.request_id)

    assert answer.result is None
    assert answer.error is not None
    assert (answer.error.code, answer.error.reason, answer.error.message) == (
        code,
        failure.reason,
        failure.message,
    )
    assert [(v.field, v.description) for v in answer.error.violations] == list(failure.violations)
    assert answer.error.metadata == {"tree": f"trees/{asked.request_id}"}
    assert (tree.state, tree.error.code, tree.error.reason) == (
        pb.TREE_STATE_FAILED,
        failure.code,
        failure.reason,
    )
    assert [(v.field, v.description) for v in tree.error.field_violations] == list(failure.violations)


async def test_bad_input_creates_no_tree_and_the_next_request_works(gateway: Gateway) -> None:
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await gateway.knows_policies()
        bad = await gateway.ask(request(question=" ", policy="beam", parameters={"C": 1}))
        answering = asyncio.create_task(gateway.ask(request()))
        await worker.grant()
        await (await worker.take()).answer()
        good = await answering

    assert bad.error is not None
    assert bad.error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert {v.field for v in bad.error.violations} == {"search.question", "search.policy"}
    assert good.result is not None
    assert len(await gateway.store.list_trees(10)) == 1


async def test_without_a_request_id_the_service_makes_one(gateway: Gateway) -> None:
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(request(request_id="")))
        search = await worker.take()
        await search.answer()
        result = (await answering).result

    assert result is not None
    assert result.name == f"trees/{search.tree_id}"


async def test_a_retry_gets_the_first_search_and_its_result(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant(2)
        first = asyncio.create_task(gateway.ask(asked))
        search = await worker.take()
        again = gateway.reason(asked)  # while it runs
        await read_until(again, is_state(pb.TREE_STATE_RUNNING))
        await search.answer()
        answers = [await first, await gateway.ask(asked)]  # and after it has ended
        asked.request_id = asked.request_id.upper()
        asked.cancel_on_disconnect = True  # a matter of the call, not of the search
        answers.append(await gateway.ask(asked))
        rest = await read(again)
        left_over = worker.assignments.qsize()

    assert answers[0].result is not None
    assert answers[1] == answers[0]
    assert answers[2] == answers[0]
    assert rest.result == answers[0].result
    assert left_over == 0


async def test_a_request_id_used_for_another_search_is_refused(gateway: Gateway) -> None:
    asked = request()
    first = gateway.reason(asked)
    await read_until(first, is_state(pb.TREE_STATE_QUEUED))

    other = await gateway.ask(request(request_id=asked.request_id, question="And 6 x 8?"))
    first.cancel()

    assert other.events == []
    assert other.error is not None
    assert (other.error.code, other.error.reason) == (grpc.StatusCode.ALREADY_EXISTS, "REQUEST_ID_REUSED")
    assert (await gateway.store.tree(asked.request_id)).state is TreeState.QUEUED


async def test_the_deadline_passes_in_the_queue(gateway: Gateway) -> None:
    asked = request(deadline=0.2)
    answer = await gateway.ask(asked)
    tree = await gateway.get(asked.request_id)

    assert answer.error is not None
    assert (answer.error.code, answer.error.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "DEADLINE_EXCEEDED",
    )
    assert answer.events[-1].tree.state == pb.TREE_STATE_EXPIRED
    assert (tree.state, tree.error.code) == (pb.TREE_STATE_EXPIRED, 4)
    await queue_shrinks_to(gateway.store, 0)


async def test_a_client_that_goes_away_does_not_stop_its_search(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        call = gateway.reason(asked)
        search = await worker.take()
        call.cancel()
        # the gateway has seen the cancellation when it has served something after it on the same connection
        await gateway.get(asked.request_id)
        await search.answer()
        result = (await gateway.ask(asked)).result

    assert worker.cancellations.empty()
    assert result is not None
    assert result.answer.text == "42"


async def test_a_client_that_goes_away_can_ask_for_the_end_of_its_running_search(gateway: Gateway) -> None:
    asked = request(cancel_on_disconnect=True)
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        call = gateway.reason(asked)
        search = await worker.take()
        call.cancel()
        told = await worker.told_to_cancel()
        await search.finish(TreeState.CANCELLED)

    assert told == asked.request_id
    assert (await gateway.store.tree(told)).cancel_requested
    assert (await gateway.get(told)).state == pb.TREE_STATE_CANCELLED


async def test_a_client_that_goes_away_can_ask_for_the_end_of_its_queued_search(gateway: Gateway) -> None:
    asked = request(cancel_on_disconnect=True)
    call = gateway.reason(asked)
    await read_until(call, is_state(pb.TREE_STATE_QUEUED))
    call.cancel()

    await reaches(gateway.store, asked.request_id, TreeState.CANCELLED)
    await queue_shrinks_to(gateway.store, 0)


async def test_a_search_that_somebody_still_watches_is_not_abandoned(gateway: Gateway) -> None:
    asked = request(cancel_on_disconnect=True)
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        broken = gateway.reason(asked)
        await read_until(broken, is_state(pb.TREE_STATE_QUEUED))
        retried = gateway.reason(asked)
        await read_until(retried, is_state(pb.TREE_STATE_QUEUED))
        broken.cancel()
        await gateway.get(asked.request_id)
        await worker.grant()
        await (await worker.take()).answer()
        answer = await read(retried)

    assert answer.result is not None
    assert answer.result.state == pb.TREE_STATE_SUCCEEDED


async def test_two_clients_watch_one_tree(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        watching = [asyncio.create_task(gateway.ask(asked)) for _ in range(2)]
        await worker.grant()
        await (await worker.take()).long_search()
        one, two = await asyncio.gather(*watching)

    assert one.result is not None
    assert one == two


async def test_a_full_queue_refuses_and_says_when_to_come_back(config: GatewayConfig) -> None:
    async with running_gateway(dataclasses.replace(config, max_queued=2)) as gateway:
        waiting = [request(), request()]
        calls = []
        for asked in waiting:
            calls.append(gateway.reason(asked))
            await read_until(calls[-1], is_state(pb.TREE_STATE_QUEUED))
        refused = await gateway.ask(request())
        # a request that is in the queue already is not refused
        again = gateway.reason(waiting[0])
        await read_until(again, is_state(pb.TREE_STATE_QUEUED))
        async with scripted_worker(gateway.channel, gateway.store) as worker:
            await worker.grant()
            taken = await worker.take()
            await queue_shrinks_to(gateway.store, 1)
            let_in = gateway.reason(request())
            await read_until(let_in, is_state(pb.TREE_STATE_QUEUED))
            await taken.answer()
        for call in (*calls, again, let_in):
            call.cancel()

    assert refused.events == []
    assert refused.error is not None
    assert (refused.error.code, refused.error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert refused.error.retry_after == 2.0


async def test_the_bound_of_the_queue_holds_when_many_come_at_once(config: GatewayConfig) -> None:
    async with running_gateway(dataclasses.replace(config, max_queued=5)) as gateway:
        calls = [gateway.reason(request()) for _ in range(40)]
        firsts = await asyncio.gather(*(call.read() for call in calls), return_exceptions=True)
        accepted = [first for first in firsts if not isinstance(first, BaseException)]
        refused = [first for first in firsts if isinstance(first, grpc.aio.AioRpcError)]
        queued = await gateway.store.queue_length()
        for call in calls:
            call.cancel()

    assert 0 < len(accepted) == queued <= 5
    assert len(accepted) + len(refused) == 40
    assert {error.code() for error in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}


@pytest.mark.no_asyncio_debug
async def test_hundreds_of_clients_are_watched_at_once(gateway: Gateway) -> None:
    asked = [request() for _ in range(250)]
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        answering = [asyncio.create_task(gateway.ask(one)) for one in asked]
        await worker.grant(len(asked))
        for _ in asked:
            await (await worker.take()).answer()
        answers = await asyncio.gather(*answering)

    assert [answer.error for answer in answers] == [None] * len(asked)
    assert {answer.result.name for answer in answers if answer.result} == {
        f"trees/{a.request_id}" for a in asked
    }


async def test_a_search_with_very_many_events_arrives_whole(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        search = await worker.take()
        await search.commit(Batch(nodes=tuple(NodeChange(n, None, LIVE) for n in range(1, 1001))))
        gone = tuple(NodeChange(n, NodeState.LIVE, (NodeState.CANCELLED,)) for n in range(1, 1001))
        await search.finish(TreeState.SUCCEEDED, Batch(nodes=gone), Outcome(None))
        answer = await answering

    assert len(answer.events) == 3 + 3 * 1000
    assert len({event.event_id for event in answer.events}) == len(answer.events)
    assert answer.result is not None
