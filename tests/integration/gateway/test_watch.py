"""Watching: from any event on, in order, without a gap, for many at once, until the tree has ended."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import grpc
import pytest
from redis.asyncio import Redis

from gateway.config import GatewayConfig
from tests.integration.gateway.harness import (
    Gateway,
    eventually,
    is_state,
    read_until,
    refused,
    request,
    running_gateway,
    watched,
)
from tests.integration.gateway.scripted_worker import LIVE, Search, scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.embedded import EmbeddedServer, free_port
from tree_store.events import number_of
from tree_store.model import Batch, NodeChange, NodeState, Outcome, TreeState


def watch(gateway: Gateway, tree_id: str, after: str = "") -> Any:
    return gateway.stub.WatchTree(pb.WatchTreeRequest(name=f"trees/{tree_id}", after_event_id=after))


async def submit(gateway: Gateway, **search: Any) -> str:
    """The id of a tree that is queued."""
    asked = request(**search)
    reply = await gateway.stub.Submit(pb.SubmitRequest(search=asked.search, request_id=asked.request_id))
    assert reply.tree.state == pb.TREE_STATE_QUEUED
    return asked.request_id


async def taken(gateway: Gateway, tree_id: str) -> Search:
    """The tree, run by the test itself."""
    assigned = await gateway.store.assign(tree_id, "test", 3600)
    return Search(gateway.store, tree_id, assigned.epoch, pb.Search())


def ids(events: list[pb.TreeEvent]) -> list[str]:
    return [event.event_id for event in events]


def spawn(first: int, count: int) -> Batch:
    return Batch(nodes=tuple(NodeChange(n, None, LIVE) for n in range(first, first + count)))


async def test_watchers_from_any_event_on_get_the_rest_and_its_end(gateway: Gateway) -> None:
    tree_id = await submit(gateway)
    from_the_first = asyncio.create_task(watched(watch(gateway, tree_id)))
    await (await taken(gateway, tree_id)).long_search()
    whole = await from_the_first

    # as Reason tells it, and the store has it
    assert ids(whole) == [e.event_id for e in await gateway.store.events(tree_id)]
    assert whole == (await gateway.ask(request(request_id=tree_id))).events
    assert whole[-1].tree.state == pb.TREE_STATE_SUCCEEDED
    # the last event itself included: nothing comes after it
    for place, event in enumerate(whole, start=1):
        assert await watched(watch(gateway, tree_id, event.event_id)) == whole[place:]


async def test_a_tree_says_from_where_to_watch_it(gateway: Gateway) -> None:
    tree_id = await submit(gateway)
    search = await taken(gateway, tree_id)
    await search.commit(spawn(1, 3))
    tree = await gateway.get(tree_id)
    assert tree.counts.live == 3
    watching = asyncio.create_task(watched(watch(gateway, tree_id, tree.last_event_id)))
    await search.commit(spawn(4, 1))
    gone = tuple(NodeChange(n, NodeState.LIVE, (NodeState.CANCELLED,)) for n in range(1, 5))
    await search.finish(TreeState.SUCCEEDED, Batch(nodes=gone), Outcome(None))

    events = await watching

    assert [event.node.node for event in events[:2]] == [4, 4]
    assert [event.node.to for event in events[2:-1]] == [pb.NODE_STATE_CANCELLED] * 4
    assert (await gateway.get(tree_id)).last_event_id == events[-1].event_id


async def test_a_broken_call_goes_on_after_the_last_event_that_came(gateway: Gateway) -> None:
    asked = request()
    call = gateway.reason(asked)
    first = await read_until(call, is_state(pb.TREE_STATE_QUEUED))
    call.cancel()
    await (await taken(gateway, asked.request_id)).long_search()

    asked.after_event_id = first.event_id
    rest = await gateway.ask(asked)

    assert rest.result is not None
    assert ids(rest.events) == [e.event_id for e in (await gateway.store.events(asked.request_id))[1:]]


async def test_who_comes_too_late_is_told_what_to_do_and_can_do_it(config: GatewayConfig) -> None:
    async with running_gateway(dataclasses.replace(config, max_events=30)) as gateway:
        tree_id = await submit(gateway)
        first = (await gateway.get(tree_id)).last_event_id
        search = await taken(gateway, tree_id)
        await search.commit(spawn(1, 20))

        for after in ("", first):
            error = await refused(watched(watch(gateway, tree_id, after)))
            assert (error.code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_TRIMMED")
            assert "last_event_id" in error.message

        last = (await gateway.get(tree_id)).last_event_id
        watching = asyncio.create_task(watched(watch(gateway, tree_id, last)))
        await end(search, 20)
        assert [e.node.node for e in (await watching)[:-1]] == list(range(1, 21))
        # a call that is repeated asks for the result above all
        asked = request(request_id=tree_id)
        asked.after_event_id = first
        repeated = await gateway.ask(asked)
        assert repeated.result is not None
        assert ids(repeated.events) == [e.event_id for e in await gateway.store.events(tree_id, skip=True)]


async def test_a_watcher_that_is_overtaken_is_told_and_never_misses_an_event(config: GatewayConfig) -> None:
    # given a feed that keeps little, and a watcher that does not read
    async with running_gateway(dataclasses.replace(config, max_events=100)) as gateway:
        tree_id = await submit(gateway)
        call = watch(gateway, tree_id)
        events = [(await call.read()).event]
        search = await taken(gateway, tree_id)
        for first in range(1, 10_001, 1000):
            await search.commit(spawn(first, 1000))

        # when it reads again
        async def rest() -> None:
            while True:
                message = await call.read()
                assert message is not grpc.aio.EOF
                events.append(message.event)

        error = await refused(rest())

    assert (error.code, error.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_TRIMMED")
    assert [number_of(event.event_id) for event in events] == list(range(1, len(events) + 1))


async def end(search: Search, nodes: int) -> None:
    """Cancels live nodes 1 to `nodes`, and ends the tree."""
    gone = tuple(NodeChange(n, NodeState.LIVE, (NodeState.CANCELLED,)) for n in range(1, nodes + 1))
    await search.finish(TreeState.SUCCEEDED, Batch(nodes=gone), Outcome(None))


@pytest.mark.no_asyncio_debug
async def test_hundreds_of_watchers_share_few_connections_and_all_see_everything(
    gateway: Gateway, redis: Redis
) -> None:
    # given ten watchers of each of thirty trees that go on
    trees = [await submit(gateway) for _ in range(30)]
    before = len(await redis.client_list())
    watching = [asyncio.create_task(watched(watch(gateway, tree_id))) for tree_id in trees for _ in range(10)]
    searches = [await taken(gateway, tree_id) for tree_id in trees]
    connections = []
    for first in range(1, 51, 5):
        for search in searches:
            await search.commit(spawn(first, 5))
        connections.append(len(await redis.client_list()))
    for search in searches:
        await end(search, 50)

    seen = await asyncio.gather(*watching)

    feeds = [
        [e.event_id for e in await gateway.store.events(tree_id)] for tree_id in trees for _ in range(10)
    ]
    assert [ids(events) for events in seen] == feeds
    assert max(connections) <= before + 25


async def test_a_watcher_of_a_tree_that_is_deleted_is_told(gateway: Gateway, redis: Redis) -> None:
    # given a quiet tree that vanishes, as by a deletion whose end nobody was told
    tree_id = await submit(gateway)
    call = watch(gateway, tree_id)
    await call.read()
    await redis.delete(*[key async for key in redis.scan_iter(f"tb:{{{tree_id}}}:*")])

    error = await refused(call.read())

    assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND")
    again = await refused(watched(watch(gateway, tree_id)))
    assert again.reason == "TREE_NOT_FOUND"


async def test_a_watcher_is_told_when_the_store_is_away_and_goes_on_when_it_is_back(
    tmp_path: Path, config: GatewayConfig
) -> None:
    server = EmbeddedServer(tmp_path, free_port())
    url = f"redis://127.0.0.1:{server.port}"
    server.start()
    try:
        async with running_gateway(dataclasses.replace(config, redis_url=url)) as gateway:
            tree_id = await submit(gateway)
            call = watch(gateway, tree_id)
            first = (await call.read()).event
            server.stop()

            error = await refused(call.read())

            server.start()
            watching = asyncio.create_task(watched(watch(gateway, tree_id, first.event_id)))
            await (await taken(gateway, tree_id)).answer()
            rest = await watching
    finally:
        server.stop()

    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    assert [number_of(event.event_id) for event in rest] == list(range(2, len(rest) + 2))
    assert rest[-1].tree.state == pb.TREE_STATE_SUCCEEDED


async def test_a_watcher_is_told_when_the_gateway_stops(config: GatewayConfig) -> None:
    async with running_gateway(dataclasses.replace(config, grace=0.1)) as gateway:
        tree_id = await submit(gateway)
        call = watch(gateway, tree_id)
        await call.read()
        await gateway.stop()
        error = await refused(call.read())

    assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "GATEWAY_STOPPING")


async def test_a_watcher_that_leaves_costs_nothing_more(gateway: Gateway, redis: Redis) -> None:
    tree_id = await submit(gateway)
    calls = [watch(gateway, tree_id) for _ in range(20)]
    for call in calls:
        await call.read()
    for call in calls:
        call.cancel()

    async def nobody_reads() -> bool:
        return not any(c["cmd"] == "xread" and "b" in c["flags"] for c in await redis.client_list())

    # the dispatcher, which waits in the queue, has no credit to look for
    await eventually(nobody_reads)
    await asyncio.sleep(0.2)
    assert await nobody_reads()


async def test_submitting_again_joins_the_first_search(gateway: Gateway) -> None:
    asked = request()
    submitted = pb.SubmitRequest(search=asked.search, request_id=asked.request_id)
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant(2)
        queued = (await gateway.stub.Submit(submitted)).tree
        await (await worker.take()).answer()
        answer = await gateway.ask(asked)  # a call of Reason may join it as well
        ended = (await gateway.stub.Submit(submitted)).tree

    assert (queued.name, queued.question) == (f"trees/{asked.request_id}", "What is 6 x 7?")
    assert answer.result is not None
    assert ended.result == answer.result
    assert worker.assignments.empty()


async def test_a_submission_without_an_id_gets_one(gateway: Gateway) -> None:
    one, two = [(await gateway.stub.Submit(pb.SubmitRequest(search=request().search))).tree for _ in range(2)]

    assert one.name != two.name
    assert (await gateway.get(one.name.removeprefix("trees/"))).name == one.name
