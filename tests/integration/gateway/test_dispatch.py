"""From the queue to a worker: by credit, in order, to one that fits, and again when a worker is lost."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from typing import Any

import grpc
import pytest
from redis.asyncio import Redis

import gateway.dispatcher as gateway_dispatcher
from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    Gateway,
    eventually,
    is_state,
    queue_shrinks_to,
    reaches,
    read,
    read_until,
    request,
    running_gateway,
)
from tests.integration.gateway.scripted_worker import scripted_worker
from thoughtbeam.runtime.status import from_rpc_error
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2, work_pb2_grpc
from tree_store.model import TreeState


async def queued(gateway: Gateway, model: str = "tiny", **search: Any) -> str:
    """A tree in the queue, whose client has gone; its id."""
    asked = request(model=model, **search)
    call = gateway.reason(asked)
    await read_until(call, is_state(pb.TREE_STATE_QUEUED))
    call.cancel()
    return asked.request_id


async def looked_for_work(gateway: Gateway) -> None:
    """The dispatcher has had the time to hand out whatever it would: a later tree has come and gone."""
    policies = [pb.Policy(name="probe")]
    async with scripted_worker(gateway.channel, gateway.store, "probe", "probe", policies=policies) as probe:

        async def known() -> bool:
            listed = (await gateway.stub.ListPolicies(pb.ListPoliciesRequest())).policies
            return any(policy.name == "probe" for policy in listed)

        await eventually(known)
        await probe.grant()
        await queued(gateway, model="probe", policy="probe")
        await probe.take()


async def test_trees_leave_the_queue_in_order_and_only_for_credit(gateway: Gateway) -> None:
    waiting = [await queued(gateway) for _ in range(4)]
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await looked_for_work(gateway)
        assert worker.assignments.empty()
        await worker.grant(2)
        taken = [(await worker.take()).tree_id for _ in range(2)]
        await looked_for_work(gateway)
        assert worker.assignments.empty()
        await queue_shrinks_to(gateway.store, 2)
        await worker.grant()
        await worker.grant()
        taken += [(await worker.take()).tree_id for _ in range(2)]

    assert taken == waiting
    await queue_shrinks_to(gateway.store, 0)


async def test_credit_ends_with_its_stream(gateway: Gateway) -> None:
    async with scripted_worker(gateway.channel, gateway.store, "w1") as gone:
        await gateway.knows_policies()
        await gone.grant(5)
    async with scripted_worker(gateway.channel, gateway.store, "w2") as worker:
        tree_id = await queued(gateway)
        await worker.grant()
        search = await worker.take()

    # had the first one's credit been spent on it, this would be its second epoch
    assert (search.tree_id, search.epoch) == (tree_id, 1)


async def test_a_tree_goes_to_a_worker_of_its_model_and_holds_up_no_other(gateway: Gateway) -> None:
    large = await queued(gateway, model="large")
    small = await queued(gateway, model="small")
    anything = await queued(gateway, model="")
    async with (
        scripted_worker(gateway.channel, gateway.store, "w1", "small") as first,
        scripted_worker(gateway.channel, gateway.store, "w2", "large") as second,
    ):
        await first.grant(2)
        taken = [(await first.take()).tree_id for _ in range(2)]
        await second.grant()
        late = (await second.take()).tree_id

    assert taken == [small, anything]
    assert late == large


async def test_a_large_tree_goes_to_a_worker_that_takes_its_capacity(gateway: Gateway) -> None:
    async with (
        scripted_worker(gateway.channel, gateway.store, "w1", max_capacity=8) as small,
        scripted_worker(gateway.channel, gateway.store, "w2", max_capacity=64) as large,
    ):
        await large.grant()
        await gateway.knows_policies()
        await looked_for_work(gateway)
        await small.grant(5)  # the one with the most credit is taken first
        await looked_for_work(gateway)
        tree_id = await queued(gateway, parameters={"C": 32})
        search = await large.take()

    assert search.tree_id == tree_id
    assert small.assignments.empty()


async def test_a_tree_that_no_worker_can_run_is_given_to_one_that_says_why(gateway: Gateway) -> None:
    # accepted while nobody was there to know better
    tree_id = await queued(gateway, policy="unheard_of")
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        search = await worker.take()

    assert (search.tree_id, search.search.policy) == (tree_id, "unheard_of")


async def test_an_assignment_that_did_not_reach_its_worker_goes_to_the_next(config: GatewayConfig) -> None:
    # given a pace at which the second of two assignments waits for a second, and a lease that never ends
    paced = dataclasses.replace(config, dispatch_rate=1, lease=3600)
    async with running_gateway(paced) as gateway:
        first, second = await queued(gateway), await queued(gateway)
        async with scripted_worker(gateway.channel, gateway.store, "w1") as broken:
            await broken.grant(2)
            assert (await broken.take()).tree_id == first
            await reaches(gateway.store, second, TreeState.RUNNING)
            # when the worker goes away
            await broken.disconnect()
        # then the one that it did not get is handed out at once
        async with scripted_worker(gateway.channel, gateway.store, "w2") as worker:
            await worker.grant()
            search = await worker.take()
        owned = await gateway.store.tree(first)

    assert (search.tree_id, search.epoch) == (second, 2)
    # and the one that it did get is still its own: the search may go on without the stream
    assert (owned.state, owned.worker, owned.epoch) == (TreeState.RUNNING, "w1", 1)


async def test_a_worker_that_dies_loses_its_tree_with_the_lease(config: GatewayConfig) -> None:
    async with running_gateway(dataclasses.replace(config, lease=0.5)) as gateway:
        asked = request()
        call = gateway.reason(asked)
        async with scripted_worker(gateway.channel, gateway.store, "w1") as dead:
            await dead.grant()
            assert (await dead.take()).epoch == 1
        async with scripted_worker(gateway.channel, gateway.store, "w2") as worker:
            await worker.grant()
            search = await worker.take()
            assert (search.tree_id, search.epoch) == (asked.request_id, 2)
            await gateway.store.renew(search.tree_id, 2, 60)
            await search.answer()
            answer = await read(call)

    transitions = [(e.tree.state, e.tree.reason) for e in answer.events if e.HasField("tree")]
    assert transitions[2] == (pb.TREE_STATE_QUEUED, "lease_expired")
    assert transitions[-1][0] == pb.TREE_STATE_SUCCEEDED
    assert answer.result is not None


async def test_a_tree_handed_back_goes_to_the_next_worker(gateway: Gateway) -> None:
    tree_id = await queued(gateway)
    async with (
        scripted_worker(gateway.channel, gateway.store, "w1") as leaving,
        scripted_worker(gateway.channel, gateway.store, "w2") as staying,
    ):
        await leaving.grant()
        search = await leaving.take()
        await staying.grant()
        await gateway.store.requeue(search.tree_id, search.epoch)
        again = await staying.take()

    assert (again.tree_id, again.epoch) == (tree_id, 2)


async def test_a_tree_that_no_worker_fits_keeps_its_place(gateway: Gateway) -> None:
    large = [await queued(gateway, model="large") for _ in range(3)]
    async with scripted_worker(gateway.channel, gateway.store, "w1", "small") as small:
        await small.grant(2)
        for _ in range(2):
            await looked_for_work(gateway)
        assert small.assignments.empty()
        await queue_shrinks_to(gateway.store, len(large))
        assert [tree_id for _, tree_id in await gateway.store.queue()] == large
        async with scripted_worker(gateway.channel, gateway.store, "w2", "large") as worker:
            taken = []
            for _ in large:
                await worker.grant()
                taken.append((await worker.take()).tree_id)

    assert taken == large
    await queue_shrinks_to(gateway.store, 0)


async def test_many_trees_that_no_worker_fits_hold_up_no_other(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_dispatcher, "_PAGE", 3)
    monkeypatch.setattr(gateway_dispatcher, "_REMEMBERED", 5)
    large = [await queued(gateway, model="large") for _ in range(10)]
    async with scripted_worker(gateway.channel, gateway.store, "w1", "small") as small:
        await small.grant(2)
        await looked_for_work(gateway)
        for _ in range(2):
            tree_id = await queued(gateway, model="small")
            assert (await small.take()).tree_id == tree_id

    assert [tree_id for _, tree_id in await gateway.store.queue()] == large


async def test_a_gateway_leaves_to_another_what_its_own_workers_do_not_fit(
    config: GatewayConfig, gateway: Gateway
) -> None:
    async with (
        running_gateway(config) as other,
        scripted_worker(gateway.channel, gateway.store, "w1", "small") as here,
        scripted_worker(other.channel, gateway.store, "w2", "large") as there,
    ):
        await here.grant(5)
        trees = [await queued(other, model="large") for _ in range(2)]
        await looked_for_work(gateway)
        await there.grant(2)
        taken = [(await there.take()).tree_id for _ in trees]

    assert taken == trees
    assert here.assignments.empty()


async def test_a_tree_that_needs_scores_goes_to_a_worker_with_a_scorer(gateway: Gateway) -> None:
    policies = [pb.Policy(name="gambit", needs_scores=True)]
    async with (
        scripted_worker(gateway.channel, gateway.store, "w1", policies=policies, scorer="") as without,
        scripted_worker(gateway.channel, gateway.store, "w2", policies=policies) as scored,
    ):
        await scored.grant()
        await gateway.knows_policies()
        await looked_for_work(gateway)
        await without.grant(5)
        await looked_for_work(gateway)
        tree_id = await queued(gateway)
        search = await scored.take()

    assert search.tree_id == tree_id
    assert without.assignments.empty()


async def test_what_a_lost_queue_held_is_put_back(gateway: Gateway, redis: Redis) -> None:
    trees = [await queued(gateway) for _ in range(3)]
    await redis.delete("tb:queue")
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant(3)
        taken = {(await worker.take()).tree_id for _ in trees}

    assert taken == set(trees)


async def test_a_tree_that_is_twice_in_the_queue_is_assigned_once(gateway: Gateway, redis: Redis) -> None:
    tree_id = await queued(gateway)
    await redis.xadd("tb:queue", {"tree": tree_id})
    await redis.xadd("tb:queue", {"tree": str(uuid.uuid4())})  # and one that there is not
    last = await queued(gateway)
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant(4)
        taken = [(await worker.take()).tree_id for _ in range(2)]
        await queue_shrinks_to(gateway.store, 0)
        # the credit that the others would have cost is still there
        third = await queued(gateway)
        taken.append((await worker.take()).tree_id)
        fourth = await queued(gateway)
        taken.append((await worker.take()).tree_id)

    assert taken == [tree_id, last, third, fourth]


async def test_two_gateways_share_a_queue(config: GatewayConfig, gateway: Gateway) -> None:
    async with (
        running_gateway(config) as other,
        scripted_worker(gateway.channel, gateway.store, "w1") as here,
        scripted_worker(other.channel, gateway.store, "w2") as there,
    ):
        trees = [await queued(gateway) for _ in range(10)]
        await here.grant(5)
        await there.grant(5)
        taken = [(await worker.take()).tree_id for worker in (here, there) for _ in range(5)]
        # a client of one watches a tree whose worker is connected to the other
        watched = request()
        answering = asyncio.create_task(other.ask(watched))
        await here.grant()
        await (await here.take()).answer()
        answer = await answering

    assert sorted(taken) == sorted(trees)
    assert answer.result is not None


async def refusal(
    gateway: Gateway, *messages: work_pb2.WorkRequest
) -> tuple[grpc.StatusCode, str, list[str]]:
    """How the gateway ends a stream that sends these: code, reason, bad fields."""
    stream: Any = work_pb2_grpc.WorkServiceStub(gateway.channel).Work()
    for message in messages:
        await stream.write(message)
    await stream.done_writing()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await read_to_end(stream)
    error = from_rpc_error(caught.value)
    return error.code, error.reason, [v.field for v in error.violations]


async def read_to_end(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


GOOD_HELLO = work_pb2.Hello(worker="w", model="tiny", slots=1, max_context=1, max_capacity=1)
CREDIT = work_pb2.WorkRequest(credit=work_pb2.Credit(trees=1))


@pytest.mark.parametrize(
    ("messages", "fields"),
    [
        ([], ["message"]),
        ([CREDIT], ["message"]),
        ([work_pb2.WorkRequest()], ["message"]),
        (
            [work_pb2.WorkRequest(hello=work_pb2.Hello())],
            ["hello.worker", "hello.model", "hello.slots", "hello.max_context", "hello.max_capacity"],
        ),
        ([work_pb2.WorkRequest(hello=GOOD_HELLO), work_pb2.WorkRequest(hello=GOOD_HELLO)], ["message"]),
        ([work_pb2.WorkRequest(hello=GOOD_HELLO), CREDIT, work_pb2.WorkRequest()], ["message"]),
    ],
    ids=[
        "nothing",
        "credit first",
        "an empty message",
        "an empty hello",
        "hello twice",
        "an empty message later",
    ],
)
async def test_a_stream_that_breaks_the_protocol_is_told_so(
    gateway: Gateway, messages: list[work_pb2.WorkRequest], fields: list[str]
) -> None:
    assert await refusal(gateway, *messages) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", fields)
    await gateway.knows_no_policies()


async def test_a_worker_that_comes_back_takes_the_place_of_its_old_stream(gateway: Gateway) -> None:
    tree_id = await queued(gateway)
    async with (
        scripted_worker(gateway.channel, gateway.store, "w1") as old,
        scripted_worker(gateway.channel, gateway.store, "w2"),
    ):
        await gateway.knows_policies()
        async with scripted_worker(gateway.channel, gateway.store, "w1") as new:
            await old.ended.wait()
            await new.grant()
            search = await new.take()
        assert old.error is not None
        told = from_rpc_error(old.error)

    assert search.tree_id == tree_id
    assert (told.code, told.reason) == (grpc.StatusCode.ABORTED, "WORKER_REPLACED")


async def test_policies_are_those_of_the_connected_workers(gateway: Gateway) -> None:
    async def listed() -> list[str]:
        return [p.name for p in (await gateway.stub.ListPolicies(pb.ListPoliciesRequest())).policies]

    assert await listed() == []
    sart = [pb.Policy(name="sart")]
    async with (
        scripted_worker(gateway.channel, gateway.store, "w1"),
        scripted_worker(gateway.channel, gateway.store, "w2", policies=sart) as second,
    ):

        async def all_there() -> bool:
            return await listed() == ["gambit", "sart", "vanilla"]

        await eventually(all_there)
        await second.disconnect()

        async def one_gone() -> bool:
            return await listed() == ["gambit", "vanilla"]

        await eventually(one_gone)
