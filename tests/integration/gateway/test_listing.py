"""Reading trees and nodes: pages, tokens, names, and how a search looks before, during and after it."""

from __future__ import annotations

import asyncio
import uuid

import grpc
import pytest
from redis.asyncio import Redis

from tests.integration.gateway.harness import Gateway, is_state, read_until, refused, request
from tests.integration.gateway.scripted_worker import LIVE, scripted_worker
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import Batch, NodeChange


async def searched(gateway: Gateway) -> str:
    """The id of a tree that has succeeded after a tournament."""
    asked = request(profile="tiny", parameters={"C": 2})
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        answering = asyncio.create_task(gateway.ask(asked))
        await (await worker.take()).long_search()
        await answering
    return asked.request_id


async def test_a_tree_tells_all_about_itself(gateway: Gateway) -> None:
    tree = await gateway.get(await searched(gateway))

    assert (tree.state, tree.model, tree.policy, tree.profile) == (
        pb.TREE_STATE_SUCCEEDED,
        "tiny",
        "gambit",
        "tiny",
    )
    assert dict(tree.parameters) == {"C": 2, "K": 1, "refill": True}
    assert (tree.worker, tree.epoch, tree.question) == ("w1", 1, "What is 6 x 7?")
    assert tree.counts == pb.TreeCounts(nodes=3, roots=2, branches=1, finished=2, pruned=1, rounds=1)
    assert tree.usage == pb.TokenUsage(prompt=11, generated=9, recomputed=1)
    times = [t.ToNanoseconds() for t in (tree.create_time, tree.start_time, tree.end_time, tree.deadline)]
    assert times == sorted(times)
    result = tree.result
    assert result.elapsed.ToNanoseconds() == times[2] - times[0]
    assert result.queued.ToNanoseconds() == times[1] - times[0]
    assert not tree.HasField("error")


async def test_a_queued_tree_has_neither_result_nor_times_nor_parameters(gateway: Gateway) -> None:
    asked = request()
    asked.search.conversation.messages.add(role="system", content="Be brief.")
    asked.search.conversation.messages.add(role="user", content="x" * 300)
    await read_until(gateway.reason(asked), is_state(pb.TREE_STATE_QUEUED))
    tree = await gateway.get(asked.request_id)

    assert tree.state == pb.TREE_STATE_QUEUED
    assert tree.question == "x" * 200
    for field in ("result", "error", "start_time", "end_time", "parameters"):
        assert not tree.HasField(field), field


async def test_nodes_are_listed_by_number_with_the_winning_path_marked(gateway: Gateway) -> None:
    parent = f"trees/{await searched(gateway)}"
    nodes = list((await gateway.stub.ListNodes(pb.ListNodesRequest(parent=parent))).nodes)

    assert [(n.name, n.number, n.state) for n in nodes] == [
        (f"{parent}/nodes/1", 1, pb.NODE_STATE_PRUNED),
        (f"{parent}/nodes/2", 2, pb.NODE_STATE_FINISHED),
        (f"{parent}/nodes/3", 3, pb.NODE_STATE_FINISHED),
    ]
    assert [(n.HasField("parent"), n.parent, n.branch_position) for n in nodes] == [
        (False, 0, 0),
        (False, 0, 0),
        (True, 2, 3),
    ]
    assert [(n.mean_score, n.unique_tokens, n.total_tokens) for n in nodes] == [
        (0.25, 0, 0),
        (0.75, 3, 3),
        (0.75, 0, 3),
    ]
    assert [(n.finish_reason, n.answer, n.winning) for n in nodes] == [
        ("", "", False),
        ("stop", "42", True),
        ("stop", "42", False),
    ]


async def test_an_unscored_node_has_no_mean_score(gateway: Gateway) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        call = gateway.reason(asked)
        await (await worker.take()).commit(Batch(nodes=(NodeChange(1, None, LIVE),)))
        reply = await gateway.stub.ListNodes(pb.ListNodesRequest(parent=f"trees/{asked.request_id}"))
        call.cancel()

    assert [(node.state, node.HasField("mean_score")) for node in reply.nodes] == [
        (pb.NODE_STATE_LIVE, False)
    ]


@pytest.mark.parametrize("size", [1, 3, 10, 11, 1000, 5000])
async def test_pages_of_nodes_hold_every_node_once(gateway: Gateway, size: int) -> None:
    asked = request()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await worker.grant()
        call = gateway.reason(asked)
        search = await worker.take()
        await search.commit(Batch(nodes=tuple(NodeChange(n, None, LIVE) for n in range(1, 11))))
        numbers: list[int] = []
        page = pb.ListNodesRequest(parent=f"trees/{asked.request_id}", page_size=size)
        while True:
            reply = await gateway.stub.ListNodes(page)
            assert 0 < len(reply.nodes) <= size
            numbers += [node.number for node in reply.nodes]
            if not reply.next_page_token:
                break
            page.page_token = reply.next_page_token
        call.cancel()

    assert numbers == list(range(1, 11))


async def test_pages_of_trees_go_from_new_to_old_while_trees_are_made(gateway: Gateway) -> None:
    made = []
    for _ in range(5):
        made.append(request())
        await read_until(gateway.reason(made[-1]), is_state(pb.TREE_STATE_QUEUED))
    first = await gateway.stub.ListTrees(pb.ListTreesRequest(page_size=2))
    await read_until(gateway.reason(request()), is_state(pb.TREE_STATE_QUEUED))
    second = await gateway.stub.ListTrees(pb.ListTreesRequest(page_size=2, page_token=first.next_page_token))
    # the size may change from page to page
    third = await gateway.stub.ListTrees(pb.ListTreesRequest(page_size=50, page_token=second.next_page_token))

    listed = [tree.name for reply in (first, second, third) for tree in reply.trees]
    assert listed == [f"trees/{asked.request_id}" for asked in reversed(made)]
    assert third.next_page_token == ""


async def test_no_trees_are_an_empty_page(gateway: Gateway) -> None:
    assert await gateway.stub.ListTrees(pb.ListTreesRequest()) == pb.ListTreesResponse()


async def test_a_token_is_good_for_its_own_list_only(gateway: Gateway, redis: Redis) -> None:
    trees = [request(), request()]
    for asked in trees:
        await read_until(gateway.reason(asked), is_state(pb.TREE_STATE_QUEUED))
    token = (await gateway.stub.ListTrees(pb.ListTreesRequest(page_size=1))).next_page_token
    parent = f"trees/{trees[0].request_id}"

    foreign = await refused(gateway.stub.ListNodes(pb.ListNodesRequest(parent=parent, page_token=token)))
    invented = await refused(gateway.stub.ListTrees(pb.ListTreesRequest(page_token="invented")))
    await redis.zrem("tb:trees", trees[1].request_id)
    outlived = await gateway.stub.ListTrees(pb.ListTreesRequest(page_token=token))

    for error in (foreign, invented):
        assert (error.code, [v.field for v in error.violations]) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            ["page_token"],
        )
    assert "belongs to the list of trees" in foreign.message
    # what it goes on from may be gone
    assert [tree.name for tree in outlived.trees] == [parent]


@pytest.mark.parametrize(
    "name", ["", "trees/", "trees/1", "nodes/1", f"trees/{uuid.uuid4()}/nodes/1", "trees/{x}:meta"]
)
async def test_a_name_that_is_none_is_refused(gateway: Gateway, name: str) -> None:
    calls = {
        "name": [
            gateway.stub.GetTree(pb.GetTreeRequest(name=name)),
            gateway.stub.CancelTree(pb.CancelTreeRequest(name=name)),
        ],
        "parent": [gateway.stub.ListNodes(pb.ListNodesRequest(parent=name))],
    }
    for field, of_field in calls.items():
        for call in of_field:
            error = await refused(call)
            assert (error.code, [v.field for v in error.violations]) == (
                grpc.StatusCode.INVALID_ARGUMENT,
                [field],
            )


async def test_an_unknown_tree_is_not_found(gateway: Gateway) -> None:
    name = f"trees/{uuid.uuid4()}"
    for call in (
        gateway.stub.GetTree(pb.GetTreeRequest(name=name)),
        gateway.stub.ListNodes(pb.ListNodesRequest(parent=name)),
    ):
        error = await refused(call)
        assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND")
        assert name.removeprefix("trees/") in error.message


async def test_a_negative_page_size_is_refused(gateway: Gateway) -> None:
    parent = f"trees/{uuid.uuid4()}"
    for call in (
        gateway.stub.ListTrees(pb.ListTreesRequest(page_size=-1)),
        gateway.stub.ListNodes(pb.ListNodesRequest(parent=parent, page_size=-1)),
    ):
        assert [v.field for v in (await refused(call)).violations] == ["page_size"]


async def test_a_tree_that_vanishes_ends_the_call_that_watches_it(gateway: Gateway, redis: Redis) -> None:
    asked = request()
    call = gateway.reason(asked)
    await read_until(call, is_state(pb.TREE_STATE_QUEUED))
    keys = [key async for key in redis.scan_iter(f"tb:{{{asked.request_id}}}:*")]
    await redis.delete(*keys)

    error = await refused(call.read())

    assert error.reason == "TREE_NOT_FOUND"
