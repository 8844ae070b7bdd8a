"""What is done with a search by its id: submit, watch, wait, delete; and how busy the service is."""

from __future__ import annotations

import time
from typing import Any

import grpc
import pytest

import thoughtbeam
from tests.unit.thoughtbeam.calls import FAST, Calls, event_ids
from tests.unit.thoughtbeam.scripted_service import LOST, ScriptedService, result
from thoughtbeam import AsyncClient, Client, TreeState, TreeTransition, WorkerState
from thoughtbeam.runtime.status import StatusError, Violation, invalid
from thoughtbeam.v1 import reasoning_pb2 as pb

TRIMMED = StatusError(grpc.StatusCode.OUT_OF_RANGE, "EVENTS_TRIMMED", "events after 1-1 are gone")
MISSING = StatusError(grpc.StatusCode.NOT_FOUND, "TREE_NOT_FOUND", "no such tree")


def told(event_id: str, state: pb.TreeState.ValueType | None = None) -> pb.WatchTreeResponse:
    """An event of a watched tree: its transition into a state, or the creation of a node."""
    event = pb.TreeEvent(event_id=event_id)
    if state is None:
        event.node.node = 1
    else:
        event.tree.state = state
    return pb.WatchTreeResponse(event=event)


def tree(state: pb.TreeState.ValueType, last_event_id: str = "", **fields: Any) -> pb.GetTreeResponse:
    return pb.GetTreeResponse(
        tree=pb.Tree(name="trees/t1", state=state, last_event_id=last_event_id, **fields)
    )


RUNNING, SUCCEEDED, CANCELLED = pb.TREE_STATE_RUNNING, pb.TREE_STATE_SUCCEEDED, pb.TREE_STATE_CANCELLED


# ---- submit


async def test_submit_returns_the_queued_tree(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["Submit"] = [pb.SubmitResponse(tree=pb.Tree(name="trees/t1", state=pb.TREE_STATE_QUEUED))]

    submitted = await calls.call(
        endpoint, "submit", "6 * 7?", policy="gambit", max_tokens=9, request_id="my-id"
    )

    assert (submitted.id, submitted.state) == ("t1", TreeState.QUEUED)
    (request,) = service.requests
    assert (request.request_id, request.search.question) == ("my-id", "6 * 7?")
    assert request.search.budgets.tokens == 9


async def test_a_submission_that_is_repeated_has_one_request_id(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["Submit"] = [LOST, LOST, pb.SubmitResponse(tree=pb.Tree(name="trees/t1"))]

    await calls.call(endpoint, "submit", "6 * 7?", policy="gambit")

    first, *others = service.requests
    assert len(first.request_id) == 36
    assert others == [first, first]


async def test_a_refused_submission_has_no_tree(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    full = StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL", "full", retry_after=1.0)
    for refusal in (invalid(Violation("search.policy", "unknown")), full):
        service.replies["Submit"] = [refusal]
        with pytest.raises(thoughtbeam.ApiError) as caught:
            await calls.call(endpoint, "submit", "6 * 7?", policy="gambit")
        assert caught.value.reason == refusal.reason
        assert caught.value.tree_id is None


async def test_a_submission_has_nobody_who_could_disconnect(calls: Calls, endpoint: str) -> None:
    with pytest.raises(TypeError, match=r"^submit\(\) got an unexpected keyword argument 'cancel_on"):
        await calls.call(endpoint, "submit", "6 * 7?", policy="gambit", cancel_on_disconnect=True)


# ---- watch


async def test_a_watched_search_that_loses_its_connection(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["WatchTree"] = [
        [told("1-1", RUNNING), told("1-2"), LOST],
        [LOST],
        [told("1-3"), told("1-4", SUCCEEDED)],
    ]

    events = await calls.call(endpoint, "watch", "t1", "1-0")

    assert event_ids(events) == ["1-1", "1-2", "1-3", "1-4"]
    assert [r.after_event_id for r in service.requests] == ["1-0", "1-2", "1-2"]
    assert {r.name for r in service.requests} == {"trees/t1"}
    assert isinstance(events[-1], TreeTransition)


async def test_the_last_event_ends_a_watch_whatever_becomes_of_the_connection(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["WatchTree"] = [[told("1-1", RUNNING), told("1-2", CANCELLED), LOST]]

    assert event_ids(await calls.call(endpoint, "watch", "t1")) == ["1-1", "1-2"]
    assert len(service.requests) == 1


async def test_nothing_is_left_to_watch(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["WatchTree"] = [[]]

    assert await calls.call(endpoint, "watch", "t1", after="1-4") == []


async def test_a_watch_that_has_fallen_behind_is_out_of_range(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["WatchTree"] = [[told("1-1"), LOST], [TRIMMED]]

    with pytest.raises(thoughtbeam.OutOfRangeError) as caught:
        await calls.call(endpoint, "watch", "t1")

    assert (caught.value.reason, caught.value.tree_id) == ("EVENTS_TRIMMED", "t1")


async def test_a_watch_has_a_timeout(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["WatchTree"] = [[told("1-1"), lambda: time.sleep(2.0)]]

    with pytest.raises(thoughtbeam.DeadlineExceededError) as caught:
        await calls.call(endpoint, "watch", "t1", timeout=0.5)

    assert (caught.value.reason, caught.value.tree_id) == ("CLIENT_TIMEOUT", "t1")


# ---- wait


async def test_wait_watches_from_now_on_and_returns_the_result(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies = {
        "GetTree": [tree(RUNNING, "1-7"), tree(SUCCEEDED, result=result("t1").result)],
        "WatchTree": [[told("1-8"), LOST], [told("1-9", SUCCEEDED)]],
    }

    waited = await calls.call(endpoint, "wait", "t1")

    assert (waited.tree_id, waited.text) == ("t1", "42")
    assert [r.after_event_id for r in service.requests if isinstance(r, pb.WatchTreeRequest)] == [
        "1-7",
        "1-8",
    ]


async def test_wait_for_what_has_ended_watches_nothing(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["GetTree"] = [tree(SUCCEEDED, "1-9", result=result("t1").result)]

    assert (await calls.call(endpoint, "wait", "t1")).text == "42"
    assert len(service.requests) == 1


async def test_wait_that_has_fallen_behind_looks_again(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies = {
        "GetTree": [
            tree(RUNNING, "1-1"),
            tree(RUNNING, "5-1"),
            tree(SUCCEEDED, result=result("t1").result),
        ],
        "WatchTree": [[TRIMMED], [told("5-2", SUCCEEDED)]],
    }

    assert (await calls.call(endpoint, "wait", "t1")).text == "42"
    watched = [r.after_event_id for r in service.requests if isinstance(r, pb.WatchTreeRequest)]
    assert watched == ["1-1", "5-1"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, thoughtbeam.DeadlineExceededError),
        (grpc.StatusCode.INVALID_ARGUMENT, thoughtbeam.InvalidArgumentError),
        (grpc.StatusCode.FAILED_PRECONDITION, thoughtbeam.FailedPreconditionError),
    ],
)
async def test_wait_raises_the_error_of_the_search(
    calls: Calls,
    service: ScriptedService,
    endpoint: str,
    code: grpc.StatusCode,
    kind: type[thoughtbeam.ApiError],
) -> None:
    violation = pb.FieldViolation(field="search.question", description="at most 3000 tokens")
    error = pb.TreeError(code=code.value[0], reason="WHY", message="because", field_violations=[violation])
    service.replies["GetTree"] = [tree(pb.TREE_STATE_FAILED, error=error)]

    with pytest.raises(kind, match="WHY: because") as caught:
        await calls.call(endpoint, "wait", "t1")

    assert [v.field for v in caught.value.violations] == ["search.question"]
    assert (caught.value.tree_id, caught.value.metadata) == ("t1", {"tree": "trees/t1"})


async def test_wait_for_a_cancelled_search(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["GetTree"] = [tree(CANCELLED, result=pb.Result(name="trees/t1"))]

    with pytest.raises(thoughtbeam.CancelledError, match="TREE_CANCELLED") as caught:
        await calls.call(endpoint, "wait", "t1")

    assert caught.value.tree_id == "t1"


async def test_the_time_of_a_wait_is_that_of_all_its_calls(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies = {
        "GetTree": [tree(RUNNING, "1-1")],
        "WatchTree": [[told("1-2"), lambda: time.sleep(2.0)]],
    }

    with pytest.raises(thoughtbeam.DeadlineExceededError, match=r"within 0\.5 s") as caught:
        await calls.call(endpoint, "wait", "t1", timeout=0.5)

    assert caught.value.tree_id == "t1"


# ---- delete


async def test_delete(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["DeleteTree"] = [pb.DeleteTreeResponse(), pb.DeleteTreeResponse()]

    assert await calls.call(endpoint, "delete", "t1") is None
    await calls.call(endpoint, "delete", "trees/t1", force=True)

    assert service.requests == [
        pb.DeleteTreeRequest(name="trees/t1"),
        pb.DeleteTreeRequest(name="trees/t1", force=True),
    ]


async def test_a_delete_whose_reply_was_lost_finds_nothing_and_is_done(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["DeleteTree"] = [LOST, MISSING]

    await calls.call(endpoint, "delete", "t1")

    assert len(service.requests) == 2


async def test_a_delete_of_what_was_never_there(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    service.replies["DeleteTree"] = [MISSING]

    with pytest.raises(thoughtbeam.NotFoundError):
        await calls.call(endpoint, "delete", "t1")


async def test_a_delete_of_a_running_search(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    service.replies["DeleteTree"] = [
        LOST,
        StatusError(grpc.StatusCode.FAILED_PRECONDITION, "TREE_NOT_ENDED", "it runs"),
    ]

    with pytest.raises(thoughtbeam.FailedPreconditionError, match="TREE_NOT_ENDED") as caught:
        await calls.call(endpoint, "delete", "t1")

    assert caught.value.retries == 1


# ---- operations


async def test_the_load(calls: Calls, service: ScriptedService, endpoint: str) -> None:
    busy = pb.GetLoadResponse(queued_trees=2, max_queued_trees=64, workers=1, slots=8, kv_use=0.5)
    busy.oldest_wait.FromMilliseconds(1500)
    service.replies["GetLoad"] = [busy, pb.GetLoadResponse()]

    load = await calls.call(endpoint, "load")
    assert (load.queued_trees, load.max_queued_trees, load.oldest_wait) == (2, 64, 1.5)
    assert (load.workers, load.slots, load.kv_use) == (1, 8, 0.5)
    assert (await calls.call(endpoint, "load")).oldest_wait is None


async def test_workers_are_listed_over_all_pages(
    calls: Calls, service: ScriptedService, endpoint: str
) -> None:
    first = pb.Worker(name="workers/a", state=pb.WORKER_STATE_SERVING, slots=8, scorer="mlp")
    second = pb.Worker(name="workers/b", state=pb.WORKER_STATE_DRAINING)
    service.replies["ListWorkers"] = [
        pb.ListWorkersResponse(workers=[first], next_page_token="more"),
        pb.ListWorkersResponse(workers=[second]),
    ]

    workers = await calls.call(endpoint, "workers")

    assert [(w.id, w.state) for w in workers] == [("a", WorkerState.SERVING), ("b", WorkerState.DRAINING)]
    assert (workers[0].slots, workers[0].scorer, workers[0].last_seen) == (8, "mlp", None)
    assert [r.page_token for r in service.requests] == ["", "more"]


# ---- whoever stops early


def test_a_watch_that_is_not_read_to_its_end_is_ended(service: ScriptedService, endpoint: str) -> None:
    service.replies["WatchTree"] = [[told("1-1"), lambda: time.sleep(0.2), told("1-2"), told("1-3")]]
    with Client(endpoint, retry=FAST) as client:
        watch = client.watch("t1")
        next(watch)
        watch.close()
        assert list(watch) == []


async def test_an_asynchronous_watch_that_is_not_read_to_its_end_is_ended(
    service: ScriptedService, endpoint: str
) -> None:
    service.replies["WatchTree"] = [[told("1-1"), lambda: time.sleep(0.2), told("1-2"), told("1-3")]]
    async with AsyncClient(endpoint, retry=FAST) as client:
        watch = client.watch("t1")
        await anext(watch)
        await watch.aclose()
        assert [event async for event in watch] == []
