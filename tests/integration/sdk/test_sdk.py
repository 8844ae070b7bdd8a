"""The clients against a real gateway and a real store, over a network that breaks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

import thoughtbeam
from gateway.config import GatewayConfig
from tests.integration.gateway.harness import Gateway, eventually, running_gateway
from tests.integration.sdk.answering_worker import (
    FIRST,
    OUTCOME,
    OWN,
    REST,
    SECOND,
    AnsweringWorker,
    answering_worker,
)
from tests.integration.sdk.breakable_link import BreakableLink
from thoughtbeam import (
    AsyncClient,
    Client,
    Result,
    RetryConfig,
    TreeEvent,
    TreeState,
    TreeTransition,
    WorkerState,
)
from tree_store.model import Failure, VoteRecord

QUESTION = "What is 7 * 6?"
PATIENT = RetryConfig(initial=0.02, maximum=0.1, first_contact=60.0, outage=60.0)
TAGS = "So:\n\n\n\n7</think>8\r\n\r\n<think>\n\n</think>\n\nthe answer\n\n"
MANY = 256


@pytest.fixture
async def client(link: BreakableLink) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(link.endpoint, retry=PATIENT) as connected:
        yield connected


async def in_thread(link: BreakableLink, method: str, *args: Any, **options: Any) -> Any:
    """The same call through the synchronous client."""

    def call() -> Any:
        with Client(link.endpoint, retry=PATIENT) as connected:
            answer = getattr(connected, method)(*args, **options)
            return list(answer) if method in ("stream", "watch") else answer

    return await asyncio.to_thread(call)


def ids(items: list[Any]) -> list[str]:
    return [item.event_id for item in items if isinstance(item, TreeEvent)]


# ---- answers


@pytest.mark.parametrize(
    "text",
    [TAGS, "\n\n", "", TAGS * 100_000, "𝒳é\u2028" * 300_000],
    ids=["tags and blank lines", "a blank line", "nothing", "many MiB", "many bytes a character"],
)
async def test_every_way_to_an_answer_leads_to_the_same_bytes(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker, text: str
) -> None:
    votes = tuple(VoteRecord(f"{n}{TAGS}", 1 / (n + 1), (n,)) for n in range(MANY))
    worker.outcome = replace(OUTCOME, answer=f"42{TAGS}", final_text=text, votes=votes)
    again = str(uuid.uuid4())

    solved = await client.solve(QUESTION, policy="gambit", request_id=again)
    streamed = [item async for item in client.stream(QUESTION, policy="gambit", request_id=again)][-1]
    read = [
        await client.wait(again),
        await client.result(again),
        await in_thread(link, "solve", QUESTION, policy="gambit", request_id=again),
        (await in_thread(link, "stream", QUESTION, policy="gambit", request_id=again))[-1],
        await in_thread(link, "wait", again),
        await in_thread(link, "result", again),
    ]

    assert isinstance(streamed, Result)
    assert all(result == solved for result in (streamed, *read))
    assert solved.answer is not None
    assert (solved.answer.text, solved.answer.final_text) == (f"42{TAGS}", text)
    assert [v.answer for v in solved.votes] == [v.answer for v in votes]
    assert not solved.abridged
    assert worker.searches == 1


async def test_a_trace_with_scores(client: AsyncClient, link: BreakableLink, worker: AnsweringWorker) -> None:
    tree = await client.submit(QUESTION, policy="gambit")
    await client.wait(tree.id)

    whole, own = await client.trace(tree.id, 3), await client.trace(tree.id, 3, own_only=True)
    parent = await in_thread(link, "trace", tree.id, 2)

    assert [(t.text, t.score, t.confidence, t.position, t.node) for t in parent.thoughts] == [
        (FIRST, 0.5, 0.25, 5, 2),
        (SECOND, 1.0, None, 8, 2),
    ]
    assert (parent.text, parent.remainder) == (FIRST + SECOND + REST, REST)
    assert [(t.text, t.score, t.node) for t in whole.thoughts] == [(FIRST, 0.5, 2), (OWN, None, 3)]
    assert whole.text == FIRST + OWN + REST
    assert [(t.text, t.node) for t in own.thoughts] == [(OWN, 3)]
    assert (own.text, own.node) == (OWN + REST, whole.node)


async def test_a_trace_that_is_not_there(client: AsyncClient, worker: AnsweringWorker) -> None:
    tree = await client.submit(QUESTION, policy="gambit")

    with pytest.raises(thoughtbeam.NotFoundError):
        await client.trace(tree.id, 99)


# ---- a network that breaks


async def test_a_stream_that_breaks_at_every_turn_gives_every_event_once(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    worker.progress, worker.pause = 20, 0.05
    items = []
    async for item in client.stream(QUESTION, policy="gambit", request_id=(again := str(uuid.uuid4()))):
        items.append(item)
        if len(items) % 3 == 1:
            link.cut()

    assert link.breaks > 5
    assert isinstance(items[-1], Result)
    assert ids(items) == ids([event async for event in client.watch(again)])
    assert worker.searches == 1


async def test_a_watch_that_breaks_at_every_turn_gives_every_event_once(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    worker.progress, worker.pause = 20, 0.05
    tree = await client.submit(QUESTION, policy="gambit")
    events = []
    async for event in client.watch(tree.id):
        events.append(event)
        if len(events) % 3 == 1:
            link.cut()

    assert link.breaks > 5
    assert ids(events) == ids(await in_thread(link, "watch", tree.id))
    assert isinstance(events[-1], TreeTransition)
    assert events[-1].state is TreeState.SUCCEEDED


async def test_the_synchronous_client_survives_the_same(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    worker.progress, worker.pause = 20, 0.05
    solving = asyncio.create_task(in_thread(link, "stream", QUESTION, policy="gambit"))
    for _ in range(8):
        await asyncio.sleep(0.15)
        link.cut()
    items = await solving

    assert ids(items) == ids([event async for event in client.watch(items[-1].tree_id)])
    assert worker.searches == 1


async def test_a_wait_outlasts_an_outage(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    worker.may_end.clear()
    tree = await client.submit(QUESTION, policy="gambit")
    waiting = [
        asyncio.create_task(client.wait(tree.id)),
        asyncio.create_task(in_thread(link, "wait", tree.id)),
    ]
    await asyncio.sleep(0.3)
    link.go_down()
    worker.may_end.set()
    await asyncio.sleep(0.5)
    link.come_up()

    first, second = await asyncio.gather(*waiting)
    assert first == second == await client.result(tree.id)


async def test_submissions_whose_replies_are_lost_are_one_search(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    async def cutting() -> None:
        for _ in range(40):
            link.cut()
            await asyncio.sleep(0.01)

    cut = asyncio.create_task(cutting())
    trees = [await client.submit(QUESTION, policy="gambit") for _ in range(10)]
    await cut

    kept = [tree.id async for tree in client.trees()]
    assert sorted(kept) == sorted(tree.id for tree in trees)


async def test_a_search_that_is_deleted_while_its_stream_is_broken_is_not_begun_anew(
    gateway: Gateway, client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    worker.may_end.clear()
    items = client.stream(QUESTION, policy="gambit", request_id=(again := str(uuid.uuid4())))
    async for item in items:
        if isinstance(item, TreeTransition) and item.state is TreeState.RUNNING:
            break
    link.go_down()
    worker.may_end.set()
    async with AsyncClient(f"127.0.0.1:{gateway.port}", retry=PATIENT) as other:
        await other.wait(again)
        await other.delete(again)
    link.come_up()

    # what had come before the break is given; what comes then is no other search's
    with pytest.raises(thoughtbeam.NotFoundError) as caught:
        [item async for item in items]
    assert caught.value.tree_id == again
    assert worker.searches == 1


async def test_a_gateway_that_is_replaced(
    config: GatewayConfig, link: BreakableLink, client: AsyncClient
) -> None:
    # given a search of which some has been seen
    items = []
    config = replace(config, grace=0.2)
    async with (
        running_gateway(config) as gateway,
        running_gateway(config) as successor,
        answering_worker(successor) as worker,
    ):
        worker.may_end.clear()
        link.target = gateway.port
        async for item in client.stream(QUESTION, policy="gambit"):
            items.append(item)
            # when its gateway stops, and another takes its place
            if len(items) == 5:
                link.target = successor.port
                await gateway.stop()
                worker.may_end.set()

        # then the rest comes from there
        assert isinstance(items[-1], Result)
        assert ids(items) == ids([event async for event in client.watch(items[-1].tree_id)])
        assert worker.searches == 1


# ---- ends


async def test_wait_raises_what_solve_raises(
    client: AsyncClient, link: BreakableLink, worker: AnsweringWorker
) -> None:
    worker.failure = Failure(3, "PROMPT_TOO_LONG", "too long", (("search.question", "at most 9 tokens"),))
    again = str(uuid.uuid4())

    with pytest.raises(thoughtbeam.InvalidArgumentError) as solved:
        await client.solve(QUESTION, policy="gambit", request_id=again)
    with pytest.raises(thoughtbeam.InvalidArgumentError) as waited:
        await client.wait(again)

    for name in ("message", "reason", "violations", "metadata", "tree_id", "retry_after"):
        assert getattr(solved.value, name) == getattr(waited.value, name), name
    assert solved.value.tree_id == again
    with pytest.raises(thoughtbeam.FailedPreconditionError, match="NO_RESULT"):
        await in_thread(link, "result", again)


async def test_wait_for_a_cancelled_search_raises_what_solve_raises(
    client: AsyncClient, worker: AnsweringWorker
) -> None:
    worker.may_end.clear()
    again = str(uuid.uuid4())
    solving = asyncio.create_task(client.solve(QUESTION, policy="gambit", request_id=again))
    await eventually(lambda: _has_branched(client, again))
    assert (await client.cancel(again)).state is TreeState.CANCELLED

    with pytest.raises(thoughtbeam.CancelledError) as solved:
        await solving
    with pytest.raises(thoughtbeam.CancelledError) as waited:
        await client.wait(again)
    assert str(solved.value) == str(waited.value)
    # what there was of it can be read
    assert (await client.result(again)).state is TreeState.CANCELLED


async def _has_branched(client: AsyncClient, tree_id: str) -> bool:
    try:
        return (await client.tree(tree_id)).counts.branches == 1
    except thoughtbeam.NotFoundError:
        return False


async def test_who_leaves_early_takes_the_search_along_if_asked(
    client: AsyncClient, worker: AnsweringWorker
) -> None:
    worker.may_end.clear()
    for leaves_it, ends in ((False, TreeState.RUNNING), (True, TreeState.CANCELLED)):
        again = str(uuid.uuid4())
        search = client.stream(QUESTION, policy="gambit", request_id=again, cancel_on_disconnect=leaves_it)
        async with aclosing(search) as items:
            async for item in items:
                if isinstance(item, TreeTransition) and item.state is TreeState.RUNNING:
                    break
        if leaves_it:
            with pytest.raises(thoughtbeam.CancelledError):
                await client.wait(again, timeout=60)
        assert (await client.tree(again)).state is ends


async def test_delete(client: AsyncClient, link: BreakableLink, worker: AnsweringWorker) -> None:
    ended = await client.submit(QUESTION, policy="gambit")
    await client.wait(ended.id)
    worker.may_end.clear()
    running = await client.submit(QUESTION, policy="gambit")

    with pytest.raises(thoughtbeam.FailedPreconditionError, match="TREE_NOT_ENDED"):
        await client.delete(running.id)
    await client.delete(running.id, force=True)
    await in_thread(link, "delete", ended.id)

    assert [tree async for tree in client.trees()] == []
    for gone in (ended, running):
        with pytest.raises(thoughtbeam.NotFoundError):
            await client.delete(gone.id)


# ---- feeds


async def test_a_watch_from_any_event_on(client: AsyncClient, worker: AnsweringWorker) -> None:
    tree = await client.submit(QUESTION, policy="gambit")
    every = ids([event async for event in client.watch(tree.id)])

    for index, event_id in enumerate(every):
        rest = ids([event async for event in client.watch(tree.id, event_id)])
        assert rest == every[index + 1 :]
    assert (await client.tree(tree.id)).last_event_id == every[-1]


async def test_who_has_fallen_behind(config: GatewayConfig) -> None:
    async with (
        running_gateway(replace(config, max_events=10)) as gateway,
        answering_worker(gateway) as worker,
        AsyncClient(f"127.0.0.1:{gateway.port}", retry=PATIENT) as client,
    ):
        worker.progress = 30
        tree = await client.submit(QUESTION, policy="gambit")
        result = await client.wait(tree.id)

        with pytest.raises(thoughtbeam.OutOfRangeError) as caught:
            [event async for event in client.watch(tree.id, "0-1")]

        assert (caught.value.reason, caught.value.tree_id) == ("EVENTS_TRIMMED", tree.id)
        assert result.text == "42"


# ---- the service


async def test_load_and_workers(client: AsyncClient, link: BreakableLink, worker: AnsweringWorker) -> None:
    worker.may_end.clear()
    tree = await client.submit(QUESTION, policy="gambit")
    await eventually(lambda: _has_branched(client, tree.id))

    load = await client.load()
    assert (load.queued_trees, load.running_trees, load.oldest_wait) == (0, 1, None)
    assert (load.workers, load.slots, load.free_slots) == (1, 4, 3)
    assert load == await in_thread(link, "load")
    (found,) = await client.workers()
    assert (found.id, found.state, found.model) == ("w1", WorkerState.SERVING, "tiny")
    assert [found] == await in_thread(link, "workers")
