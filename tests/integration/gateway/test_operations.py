"""What the service says of itself: load, workers, and workers that are about to stop."""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import Redis

from tests.integration.gateway.harness import (
    Gateway,
    eventually,
    is_state,
    read_until,
    refused,
    request,
)
from tests.integration.gateway.scripted_worker import POLICIES, scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2

DRAINING = work_pb2.WorkRequest(draining=work_pb2.Draining())


async def load(gateway: Gateway) -> pb.GetLoadResponse:
    reply: pb.GetLoadResponse = await gateway.stub.GetLoad(pb.GetLoadRequest())
    return reply


async def submit(gateway: Gateway, **search: Any) -> str:
    asked = request(**search)
    await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
    return asked.request_id


async def announce(gateway: Gateway, worker: str, **said: Any) -> None:
    fields = {
        "model": "tiny",
        "slots": 8,
        "free_slots": 2,
        "waiting_traces": 1,
        "trees": 3,
        "kv_use": 0.25,
        "state": "serving",
        "max_context": 1024,
        "max_capacity": 64,
        "scorer": "mlp",
        **said,
    }
    await gateway.store.announce_worker(worker, {name: str(value) for name, value in fields.items()}, 60)


async def test_an_idle_service_has_no_load(gateway: Gateway) -> None:
    assert await load(gateway) == pb.GetLoadResponse(max_queued_trees=1000)


async def test_load_is_the_queue_and_all_workers_together(gateway: Gateway) -> None:
    for _ in range(3):
        await submit(gateway)
        await asyncio.sleep(0.02)
    await announce(gateway, "a")
    await announce(gateway, "b", slots=16, free_slots=0, waiting_traces=5, trees=4, kv_use=0.75)
    await announce(gateway, "c", state="draining", slots=64, free_slots=64, trees=2, kv_use=0.9)

    busy = await load(gateway)

    assert busy.oldest_wait.ToMilliseconds() >= 40
    busy.ClearField("oldest_wait")
    assert busy == pb.GetLoadResponse(
        queued_trees=3,
        max_queued_trees=1000,
        running_trees=9,
        workers=2,
        slots=24,
        free_slots=2,
        waiting_traces=6,
        kv_use=0.75,
    )


async def test_workers_are_listed_by_name_in_pages(gateway: Gateway, redis: Redis) -> None:
    names = [f"w{n}@host:{n}" for n in range(7)]
    for name in reversed(names):
        await announce(gateway, name, state="draining" if name == names[3] else "serving")
    await redis.delete("tb:worker:w5@host:5")  # not heard of any more
    listed: list[pb.Worker] = []
    page = pb.ListWorkersRequest(page_size=4)
    while True:
        reply = await gateway.stub.ListWorkers(page)
        assert 0 < len(reply.workers) <= 4
        listed += reply.workers
        if not reply.next_page_token:
            break
        page.page_token = reply.next_page_token

    assert [worker.name for worker in listed] == [f"workers/{name}" for name in names if "w5" not in name]
    assert [worker.state for worker in listed].count(pb.WORKER_STATE_DRAINING) == 1
    assert listed[3].state == pb.WORKER_STATE_DRAINING
    first = listed[0]
    assert (first.model, first.slots, first.free_slots, first.trees, first.kv_use) == ("tiny", 8, 2, 3, 0.25)
    assert (first.max_context, first.max_capacity, first.scorer) == (1024, 64, "mlp")
    assert first.last_seen.ToMilliseconds() > 0


async def test_a_page_of_workers_belongs_to_its_list(gateway: Gateway) -> None:
    for name in "ab":
        await announce(gateway, name)
    token = (await gateway.stub.ListWorkers(pb.ListWorkersRequest(page_size=1))).next_page_token

    foreign = await refused(gateway.stub.ListTrees(pb.ListTreesRequest(page_token=token)))

    assert [v.field for v in foreign.violations] == ["page_token"]


async def test_a_draining_worker_gets_no_more_trees_and_offers_nothing(gateway: Gateway) -> None:
    async with scripted_worker(gateway.channel, gateway.store, "w1") as old:
        await gateway.knows_policies()
        await old.grant(5)
        await old.send(DRAINING)
        await gateway.knows_no_policies()
        tree_id = await submit(gateway)
        # what it grants now does not count either
        await old.grant(5)
        async with scripted_worker(gateway.channel, gateway.store, "w2") as new:
            await new.grant()
            search = await new.take()
            await search.answer()
            untouched = old.assignments.empty()

    assert search.tree_id == tree_id
    assert untouched


async def test_a_draining_worker_still_hears_of_cancellations(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        call = gateway.reason(asked)
        await worker.take()
        await worker.send(DRAINING)
        await gateway.knows_no_policies()
        cancelling = asyncio.ensure_future(
            gateway.stub.CancelTree(pb.CancelTreeRequest(name=f"trees/{asked.request_id}"))
        )
        told = await worker.told_to_cancel()
        cancelling.cancel()
        call.cancel()

    assert told == asked.request_id


async def test_a_tree_that_waited_for_a_worker_with_a_scorer_goes_to_another_when_that_drains(
    gateway: Gateway,
) -> None:
    # given a tree that only a worker without credit can run
    probe = pb.Policy(name="probe")
    async with (
        scripted_worker(gateway.channel, gateway.store, "scored", policies=[*POLICIES, probe]) as scored,
        scripted_worker(gateway.channel, gateway.store, "other", scorer="") as other,
    ):

        async def known() -> bool:
            listed = (await gateway.stub.ListPolicies(pb.ListPoliciesRequest())).policies
            return probe in listed

        await eventually(known)
        call = gateway.reason(request())
        await read_until(call, is_state(pb.TREE_STATE_QUEUED))
        await other.grant()
        # when that is about to stop
        await scored.send(DRAINING)
        # then the other one is to say why it cannot
        search = await other.take()
        call.cancel()

    assert search.search.policy == "gambit"


async def test_a_policy_that_needs_scores_is_refused_where_no_worker_has_a_scorer(gateway: Gateway) -> None:
    async with scripted_worker(gateway.channel, gateway.store, scorer="") as worker:
        await gateway.knows_policies()
        refusal = await gateway.ask(request())
        submitted = await refused(gateway.stub.Submit(pb.SubmitRequest(search=request().search)))
        # the stated alternative works
        answering = asyncio.create_task(gateway.ask(request(policy="vanilla")))
        await worker.grant()
        await (await worker.take()).answer()
        answer = await answering

    assert refusal.error is not None
    for error in (refusal.error, submitted):
        assert (error.code.name, error.reason) == ("FAILED_PRECONDITION", "NO_SCORER")
        assert "python -m prm_worker --scorer FILE" in error.message
        assert "vanilla" in error.message
        assert error.metadata == {"policy": "gambit", "unscored_policies": "vanilla"}
    assert answer.result is not None
    assert [p.name for p in POLICIES if p.needs_scores] == ["gambit"]
