from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import pytest

import thoughtbeam
from tests.unit.thoughtbeam.calls import FAST, Calls, event_ids
from tests.unit.thoughtbeam.scripted_service import LOST, ScriptedService, node_event, result, serving
from thoughtbeam import AsyncClient, Client, NodeTransition, Result
from thoughtbeam.runtime.status import StatusError, Violation, invalid
from thoughtbeam.v1 import reasoning_pb2 as pb


async def test_a_stream_gives_its_events_and_ends_in_the_result(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.streams = [[node_event("1-1", 1), node_event("1-2", 2), result()]]

    items = await calls.stream(endpoint, "6 * 7?", policy="gambit")

    assert event_ids(items) == ["1-1", "1-2"]
    assert isinstance(items[0], NodeTransition)
    assert isinstance(items[-1], Result)
    assert items[-1].text == "42"


async def test_solve_returns_the_result_and_reports_events(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.streams = [[node_event("1-1", 1), result("abc")]]
    seen: list[Any] = []

    solved = await calls.call(endpoint, "solve", "6 * 7?", policy="gambit", on_event=seen.append)

    assert solved.tree_id == "abc"
    assert [e.node for e in seen] == [1]


async def test_a_broken_stream_is_picked_up_under_the_same_request_id(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    # given a connection that breaks before, between and after the events
    service.streams = [
        [LOST],
        [node_event("1-1", 1), LOST],
        [node_event("1-2", 2), node_event("1-3", 3), LOST],
        [result()],
    ]

    items = await calls.stream(endpoint, "6 * 7?", policy="gambit")

    # then every event is given once, and the service can tell that it is one search, and where it goes on
    assert event_ids(items) == ["1-1", "1-2", "1-3"]
    assert isinstance(items[-1], Result)
    assert [r.after_event_id for r in service.requests] == ["", "", "1-1", "1-3"]
    first, *others = service.requests
    assert len(first.request_id) == 36
    assert all((r.request_id, r.search) == (first.request_id, first.search) for r in others)


async def test_a_stream_that_ends_without_a_result_is_picked_up(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.streams = [[node_event("1-1", 1)], [node_event("1-2", 2), result()]]

    items = await calls.stream(endpoint, "6 * 7?", policy="gambit")

    assert event_ids(items) == ["1-1", "1-2"]
    assert [r.after_event_id for r in service.requests] == ["", "1-1"]


async def test_a_service_that_goes_away_and_comes_back(calls: Calls, service: ScriptedService) -> None:
    # given a server that is stopped in the middle of a stream
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    service.streams = [
        [node_event("1-1", 1), lambda: loop.call_soon_threadsafe(told.set), lambda: time.sleep(0.3)]
    ]
    with serving(service) as address:
        solving = asyncio.create_task(calls.stream(address, "6 * 7?", policy="gambit"))
        await told.wait()
    # when another one takes its place
    await asyncio.sleep(0.1)
    successor = ScriptedService()
    successor.streams = [[node_event("1-2", 2), result()]]
    with serving(successor, int(address.rpartition(":")[2])):
        items = await solving

    # then it goes on there
    assert event_ids(items) == ["1-1", "1-2"]
    assert [r.request_id for r in successor.requests] == [service.requests[0].request_id]
    assert successor.requests[0].after_event_id == "1-1"


@pytest.mark.parametrize("reason", ["QUEUE_FULL", "STORE_FULL"])
async def test_only_unavailable_is_retried(
    calls: Calls, service: ScriptedService, endpoint: str, reason: str
) -> None:
    full = StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason, "come back", retry_after=0.05)
    service.streams = [[full], [result()]]

    with pytest.raises(thoughtbeam.ResourceExhaustedError) as caught:
        await calls.stream(endpoint, "6 * 7?", policy="gambit")

    assert caught.value.reason == reason
    assert caught.value.retry_after == 0.05
    assert len(service.requests) == 1


async def test_a_retry_waits_as_long_as_the_service_says(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    busy = StatusError(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "wait", retry_after=0.4)
    service.replies["ListPolicies"] = [busy, pb.ListPoliciesResponse()]

    started = time.monotonic()
    assert await calls.call(endpoint, "policies") == []

    assert 0.4 <= time.monotonic() - started < 30


async def test_a_delay_that_the_timeout_has_no_room_for_is_not_waited(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.streams = [
        [StatusError(grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE", "wait", retry_after=60.0)]
    ]

    started = time.monotonic()
    with pytest.raises(thoughtbeam.UnavailableError, match="STORE_UNAVAILABLE"):
        await calls.stream(endpoint, "6 * 7?", policy="gambit", timeout=50.0)

    assert time.monotonic() - started < 30


async def test_nothing_listens(calls: Calls, endpoint: str) -> None:
    with serving(ScriptedService()) as address:
        pass

    started = time.monotonic()
    with pytest.raises(thoughtbeam.UnavailableError) as caught:
        await calls.call(address, "tree", "t1")

    assert FAST.first_contact * 0.5 < time.monotonic() - started < FAST.outage
    assert caught.value.tree_id == "t1"


async def test_a_timeout_names_the_search_that_goes_on(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.streams = [[node_event("1-1", 1), lambda: time.sleep(4.0), result()]]

    with pytest.raises(thoughtbeam.DeadlineExceededError) as caught:
        await calls.stream(endpoint, "6 * 7?", policy="gambit", timeout=2.0)

    assert caught.value.reason == "CLIENT_TIMEOUT"
    assert caught.value.tree_id == service.requests[0].request_id
    assert service.requests[0].request_id in str(caught.value)


async def test_a_deadline_of_the_service_is_told_apart_from_ours(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.streams = [
        [StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, "EXPIRED_IN_QUEUE", "no worker had time")]
    ]

    with pytest.raises(thoughtbeam.DeadlineExceededError, match="no worker had time") as caught:
        await calls.stream(endpoint, "6 * 7?", policy="gambit", timeout=50.0)

    assert caught.value.reason == "EXPIRED_IN_QUEUE"


async def test_bad_fields_are_named(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.streams = [[invalid(Violation("search.parameters.K", "must be in [0, 12]"))]]

    with pytest.raises(thoughtbeam.InvalidArgumentError) as caught:
        await calls.stream(endpoint, "6 * 7?", policy="gambit", parameters={"K": 99})

    assert [(v.field, v.description) for v in caught.value.violations] == [
        ("search.parameters.K", "must be in [0, 12]")
    ]
    # it was refused before there was a tree
    assert caught.value.tree_id is None


async def test_a_search_that_failed_over_its_arguments_has_a_tree(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    code = grpc.StatusCode.INVALID_ARGUMENT
    service.streams = [[StatusError(code, "PROMPT_TOO_LONG", "too long", metadata={"tree": "trees/t1"})]]

    with pytest.raises(thoughtbeam.InvalidArgumentError) as caught:
        await calls.stream(endpoint, "6 * 7?", policy="gambit")

    assert caught.value.tree_id == service.requests[0].request_id


async def test_an_unknown_argument_names_the_method_that_was_called(calls: Calls, endpoint: str) -> None:
    with pytest.raises(TypeError, match=r"^solve\(\) got an unexpected keyword argument 'depth'"):
        await calls.call(endpoint, "solve", "6 * 7?", policy="gambit", depth=3)
    with pytest.raises(TypeError, match=r"^stream\(\) got an unexpected keyword argument 'depth'"):
        await calls.stream(endpoint, "6 * 7?", policy="gambit", depth=3)


def test_a_closed_client_says_so(endpoint: str) -> None:
    client = Client(endpoint)
    client.close()
    for call in (client.policies, lambda: client.solve("6 * 7?", policy="gambit")):
        with pytest.raises(thoughtbeam.FailedPreconditionError, match="this client has been closed"):
            call()


async def test_a_closed_asynchronous_client_says_so(endpoint: str) -> None:
    client = AsyncClient(endpoint)
    await client.close()
    for call in (client.policies, lambda: client.solve("6 * 7?", policy="gambit")):
        with pytest.raises(thoughtbeam.FailedPreconditionError, match="this client has been closed"):
            await call()


async def test_a_call_that_the_service_cancels_is_no_cancelled_task(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    cancelled = StatusError(grpc.StatusCode.CANCELLED, "SHUTTING_DOWN", "no more")
    service.streams = [[cancelled]]
    service.replies["ListPolicies"] = [cancelled]

    with pytest.raises(thoughtbeam.CancelledError, match="SHUTTING_DOWN: no more"):
        await calls.stream(endpoint, "6 * 7?", policy="gambit")
    with pytest.raises(thoughtbeam.CancelledError, match="SHUTTING_DOWN: no more"):
        await calls.call(endpoint, "policies")


async def test_a_cancelled_task_ends_its_call(service: ScriptedService, endpoint: str) -> None:
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    service.streams = [
        [
            node_event("1-1", 1),
            lambda: loop.call_soon_threadsafe(gone.set),
            lambda: time.sleep(0.5),
            result(),
        ]
    ]
    async with AsyncClient(endpoint, retry=FAST) as client:
        task = asyncio.create_task(client.solve("6 * 7?", policy="gambit"))
        await gone.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_tree_comes_with_all_its_nodes(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies = {
        "GetTree": [pb.GetTreeResponse(tree=pb.Tree(name="trees/t1", state=pb.TREE_STATE_RUNNING))],
        "ListNodes": [
            pb.ListNodesResponse(nodes=[pb.Node(number=1), pb.Node(number=2)], next_page_token="more"),
            pb.ListNodesResponse(nodes=[pb.Node(number=3)]),
        ],
    }

    tree = await calls.call(endpoint, "tree", "t1")

    assert (tree.id, tree.state) == ("t1", "running")
    assert [n.number for n in tree.nodes] == [1, 2, 3]
    assert [getattr(r, "page_token", None) for r in service.requests] == [None, "", "more"]
    assert service.requests[0].name == service.requests[1].parent == "trees/t1"


async def test_trees_are_listed_over_all_pages(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["ListTrees"] = [
        pb.ListTreesResponse(trees=[pb.Tree(name="trees/b")], next_page_token="more"),
        pb.ListTreesResponse(trees=[pb.Tree(name="trees/a")]),
    ]

    trees = await calls.call(endpoint, "trees", page_size=1)

    assert [t.id for t in trees] == ["b", "a"]
    assert [(r.page_size, r.page_token) for r in service.requests] == [(1, ""), (1, "more")]


async def test_cancel_takes_an_id_or_a_name(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    answer = pb.CancelTreeResponse(tree=pb.Tree(name="trees/t1", state=pb.TREE_STATE_CANCELLED))
    service.replies["CancelTree"] = [answer, answer]

    assert (await calls.call(endpoint, "cancel", "t1")).state == "cancelled"
    assert (await calls.call(endpoint, "cancel", "trees/t1")).state == "cancelled"

    assert [r.name for r in service.requests] == ["trees/t1", "trees/t1"]


async def test_the_endpoint_comes_from_the_environment(
    calls: Calls, service: ScriptedService, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THOUGHTBEAM_ENDPOINT", endpoint)
    service.replies["ListPolicies"] = [pb.ListPoliciesResponse(policies=[pb.Policy(name="gambit")])]

    policies = await calls.call(None, "policies")  # type: ignore[arg-type]

    assert [p.name for p in policies] == ["gambit"]


def test_both_clients_have_the_same_methods() -> None:
    def public(cls: type) -> set[str]:
        return {name for name in vars(cls) if not name.startswith("_")}

    assert public(Client) == public(AsyncClient)


def test_a_stream_that_is_not_read_to_its_end_is_cancelled(service: ScriptedService, endpoint: str) -> None:
    service.streams = [[node_event("1-1", 1), lambda: time.sleep(0.2), node_event("1-2", 2), result()]]
    with Client(endpoint, retry=FAST) as client:
        stream = client.stream("6 * 7?", policy="gambit")
        next(stream)
        stream.close()
        assert list(stream) == []
