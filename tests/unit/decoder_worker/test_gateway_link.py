"""The link against a gateway that misbehaves: it connects again, and grants one credit per free place."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest

from decoder_worker import gateway_link
from decoder_worker.engine.scripted import ScriptedConfig, ScriptedEngine
from decoder_worker.engine.scripted_traces import Drawn
from decoder_worker.gateway_link import GatewayLink
from decoder_worker.policies import POLICIES
from decoder_worker.worker import WorkerConfig
from thoughtbeam.runtime.rpc import Server, start_server
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2, work_pb2_grpc

Told = work_pb2.WorkResponse | grpc.StatusCode | None

PATIENCE = 20.0  # seconds; for what takes milliseconds


@dataclass(eq=False)
class Places:
    """What a link sees of a worker, with so many places for trees. It has room for a tree or it has not; like
    a worker, it says so whenever that may have changed."""

    free: int
    begun: list[tuple[str, int, str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    config: WorkerConfig = field(
        default_factory=lambda: WorkerConfig("worker@host:1", "tiny", 77, 10.0, 60.0, scorer_kind="mlp")
    )
    draining: bool = False
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    engine: ScriptedEngine = field(default_factory=lambda: ScriptedEngine(Drawn(), ScriptedConfig(slots=6)))

    def on_capacity(self) -> None:
        raise AssertionError("the link replaces this")

    @property
    def accepts_request(self) -> bool:
        return self.free > 0 and not self.draining

    def begin(self, tree_id: str, epoch: int, search: pb.Search) -> None:
        assert self.free, "a tree came without credit for it"
        self.free -= 1
        self.begun.append((tree_id, epoch, search.question))
        self.on_capacity()

    def cancel(self, tree_id: str) -> None:
        self.cancelled.append(tree_id)

    def leave(self) -> None:
        self.free += 1
        self.on_capacity()

    def drain(self) -> None:
        self.draining = True
        self.on_capacity()


@dataclass(eq=False)
class Stream:
    """One stream as the gateway sees it. Sending None ends it well, an error ends it with that. closed: the
    worker says no more."""

    received: asyncio.Queue[work_pb2.WorkRequest] = field(default_factory=asyncio.Queue)
    to_send: asyncio.Queue[work_pb2.WorkResponse | grpc.StatusCode | None] = field(
        default_factory=asyncio.Queue
    )
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self) -> work_pb2.WorkRequest:
        async with asyncio.timeout(PATIENCE):
            return await self.received.get()

    async def hello(self) -> work_pb2.Hello:
        message = await self.next()
        assert message.WhichOneof("message") == "hello"
        return message.hello

    async def credit(self) -> None:
        """The next message is credit for one tree."""
        message = await self.next()
        assert message.WhichOneof("message") == "credit"
        assert message.credit.trees == 1

    async def draining(self) -> None:
        """The next message is that it drains."""
        assert (await self.next()).WhichOneof("message") == "draining"

    async def stays_silent(self) -> None:
        await asyncio.sleep(0.05)
        assert self.received.empty()

    def assign(self, tree_id: str, epoch: int = 1) -> None:
        assigned = work_pb2.Assignment(
            tree_id=tree_id, epoch=epoch, search=pb.Search(question="What is 6 x 7?")
        )
        self.to_send.put_nowait(work_pb2.WorkResponse(assignment=assigned))

    def end(self, error: grpc.StatusCode | None = None) -> None:
        self.to_send.put_nowait(error)


class Gateway(work_pb2_grpc.WorkServiceServicer):
    """Does what a test says. refuse: so many streams are refused, each at once. attempts: when streams were
    opened, in loop time."""

    def __init__(self, refuse: int = 0) -> None:
        self.refuse = refuse
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.attempts: list[float] = []

    async def Work(  # noqa: N802
        self, requests: AsyncIterator[work_pb2.WorkRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[work_pb2.WorkResponse]:
        self.attempts.append(asyncio.get_running_loop().time())
        if self.refuse:
            self.refuse -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        yield work_pb2.WorkResponse(welcome=work_pb2.Welcome())
        stream = Stream()
        self.streams.put_nowait(stream)
        listening = asyncio.create_task(self._listen(requests, stream))
        try:
            while (message := await stream.to_send.get()) is not None:
                if isinstance(message, grpc.StatusCode):
                    await context.abort(message, "as told")
                yield message
        finally:
            listening.cancel()
            await asyncio.wait([listening])

    async def _listen(self, requests: AsyncIterator[work_pb2.WorkRequest], stream: Stream) -> None:
        async for message in requests:
            stream.received.put_nowait(message)
        stream.closed.set()

    async def connected(self) -> Stream:
        async with asyncio.timeout(PATIENCE):
            return await self.streams.get()

    async def serve(self, port: int = 0) -> Server:
        return await start_server(
            f"127.0.0.1:{port}",
            [lambda server: work_pb2_grpc.add_WorkServiceServicer_to_server(self, server)],
            ["thoughtbeam.v1.WorkService"],
        )


@dataclass(frozen=True, slots=True)
class Connected:
    gateway: Gateway
    server: Server
    states: list[bool]
    link: GatewayLink
    running: asyncio.Task[None]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_link, "RECONNECT_SECONDS", (0.01, 0.1))


@asynccontextmanager
async def linked(worker: Places, gateway: Gateway | None = None) -> AsyncIterator[Connected]:
    """A worker's link to a gateway for the length of the block."""
    gateway = gateway or Gateway()
    server = await gateway.serve()
    states: list[bool] = []

    async def on_state(up: bool) -> None:
        states.append(up)

    link = GatewayLink(f"127.0.0.1:{server.port}", worker, on_state)
    running = asyncio.create_task(link.run())
    try:
        yield Connected(gateway, server, states, link, running)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await server.stop(0)
    assert running.cancelled() or worker.leaving.is_set()
    assert running.cancelled() or running.exception() is None
    assert states[-1:] == [False]


async def eventually(true: Callable[[], bool]) -> None:
    """Waits for something that is going to be true."""
    async with asyncio.timeout(PATIENCE):
        while not true():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.001)


async def begun(worker: Places, trees: int) -> None:
    await eventually(lambda: len(worker.begun) >= trees)


async def test_it_says_hello_first_and_what_it_serves() -> None:
    async with linked(Places(free=0)) as connected:
        hello = await (await connected.gateway.connected()).hello()
    assert (hello.worker, hello.model, hello.slots) == ("worker@host:1", "scripted", 6)
    assert (hello.max_context, hello.max_capacity, hello.scorer) == (4096, 77, "mlp")
    assert [policy.name for policy in hello.policies] == list(POLICIES)
    gambit = next(policy for policy in hello.policies if policy.name == "gambit")
    assert gambit.needs_scores
    capacity = next(parameter for parameter in gambit.parameters if parameter.name == "C")
    assert {name: value.number_value for name, value in capacity.defaults.items()} == {
        "paper": 256,
        "tiny": 24,
    }


async def test_one_credit_is_out_at_a_time_and_none_without_a_place() -> None:
    worker = Places(free=2)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.credit()
        # however often there may be room
        for _ in range(3):
            worker.on_capacity()
        await stream.stays_silent()
        # the next when the first is used and there is room for another
        stream.assign("a", epoch=3)
        await stream.credit()
        stream.assign("b")
        await begun(worker, 2)
        await stream.stays_silent()
        worker.leave()
        await stream.credit()
        assert worker.begun == [("a", 3, "What is 6 x 7?"), ("b", 1, "What is 6 x 7?")]
        assert connected.states == [True]


async def test_a_cancellation_reaches_the_worker() -> None:
    worker = Places(free=0)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        cancellation = work_pb2.WorkResponse(cancellation=work_pb2.Cancellation(tree_id="a"))
        stream.to_send.put_nowait(cancellation)
        await eventually(lambda: worker.cancelled == ["a"])


async def test_streams_that_are_refused_are_tried_again_ever_more_slowly() -> None:
    worker = Places(free=1)
    async with linked(worker, Gateway(refuse=6)) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.credit()
        # nothing was granted, and nobody was told that it serves, before it was let in
        assert connected.states == [False] * 6 + [True]
        waits = [after - before for before, after in itertools.pairwise(connected.gateway.attempts)]
    first, longest = gateway_link.RECONNECT_SECONDS
    assert len(waits) == 6
    for number, wait in enumerate(waits):
        assert wait > 0.9 * min(first * 2**number, longest)


async def test_streams_that_end_soon_are_opened_again_ever_more_slowly() -> None:
    # as those of two workers of one name, each of which takes the other's place
    worker = Places(free=0)
    async with linked(worker) as connected:
        for _ in range(6):
            stream = await connected.gateway.connected()
            await stream.hello()
            stream.end(grpc.StatusCode.ABORTED)
        await connected.gateway.connected()
        waits = [after - before for before, after in itertools.pairwise(connected.gateway.attempts)]
    assert waits[-1] > 0.9 * gateway_link.RECONNECT_SECONDS[1]


async def test_after_a_stream_that_has_lasted_the_first_wait_is_short_again() -> None:
    worker = Places(free=0)
    async with linked(worker, Gateway(refuse=5)) as connected:
        stream = await connected.gateway.connected()
        assert connected.link._wait == gateway_link.RECONNECT_SECONDS[1]
        await asyncio.sleep(gateway_link.RECONNECT_SECONDS[1])
        stream.end()
        await connected.gateway.connected()
        assert connected.link._wait == 2 * gateway_link.RECONNECT_SECONDS[0]


async def test_a_worker_that_drains_says_so_and_grants_no_more() -> None:
    worker = Places(free=2)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.credit()
        worker.drain()
        await stream.draining()
        await eventually(lambda: connected.states == [True, False])
        # what was on its way it still takes, and cancellations
        stream.assign("a")
        await begun(worker, 1)
        cancellation = work_pb2.WorkResponse(cancellation=work_pb2.Cancellation(tree_id="a"))
        stream.to_send.put_nowait(cancellation)
        await eventually(lambda: worker.cancelled == ["a"])
        worker.leave()
        await stream.stays_silent()
        # at last it waits for what was sent before the gateway knew
        worker.leaving.set()
        await asyncio.wait_for(stream.closed.wait(), PATIENCE)
        stream.assign("b")
        stream.end()
        await asyncio.wait_for(connected.running, PATIENCE)
        assert [tree_id for tree_id, _, _ in worker.begun] == ["a", "b"]
    assert len(connected.gateway.attempts) == 1


async def test_a_worker_that_drains_says_so_on_every_stream() -> None:
    worker = Places(free=1)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        worker.drain()
        stream.end(grpc.StatusCode.UNAVAILABLE)
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.draining()
        await stream.stays_silent()
        assert not any(connected.states[1:])


async def test_a_link_that_waits_to_connect_again_ends_when_its_worker_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_link, "RECONNECT_SECONDS", (3600.0, 3600.0))
    worker = Places(free=1)
    async with linked(worker, Gateway(refuse=1)) as connected:
        await eventually(lambda: connected.states == [False])
        worker.drain()
        worker.leaving.set()
        await asyncio.wait_for(connected.running, PATIENCE)


@pytest.mark.parametrize("error", [None, grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
async def test_a_stream_that_ends_is_opened_again_and_its_unused_credit_granted_anew(
    error: grpc.StatusCode | None,
) -> None:
    worker = Places(free=1)
    async with linked(worker) as connected:
        for _ in range(3):
            stream = await connected.gateway.connected()
            await stream.hello()
            await stream.credit()
            await stream.stays_silent()
            stream.end(error)
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.credit()
        stream.assign("a")
        await begun(worker, 1)
        await stream.stays_silent()
        await eventually(lambda: connected.states == [True, False] * 3 + [True])


async def test_credit_that_was_used_is_not_granted_again_on_the_next_stream() -> None:
    worker = Places(free=1)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.credit()
        stream.assign("a")
        await begun(worker, 1)
        stream.end()
        stream = await connected.gateway.connected()
        await stream.hello()
        await stream.stays_silent()
        worker.leave()
        await stream.credit()


async def test_a_gateway_that_dies_is_found_again_when_it_is_back() -> None:
    worker = Places(free=1)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        await connected.server.stop(0)
        await eventually(lambda: not connected.states[-1])
        again = Gateway()
        server = await again.serve(connected.server.port)
        try:
            stream = await again.connected()
            await stream.hello()
            await stream.credit()
            stream.assign("a")
            await begun(worker, 1)
        finally:
            await server.stop(0)


async def test_every_place_is_filled_by_a_gateway_that_assigns_at_once() -> None:
    worker = Places(free=40)
    async with linked(worker) as connected:
        stream = await connected.gateway.connected()
        await stream.hello()
        for number in range(40):
            await stream.credit()
            stream.assign(str(number))
        await begun(worker, 40)
        await stream.stays_silent()
    assert [tree_id for tree_id, _, _ in worker.begun] == [str(number) for number in range(40)]


class EagerStream:
    """A stream on which the tree arrives while the credit for it is still being written."""

    def __init__(self) -> None:
        self.credits = 0
        self._arriving: asyncio.Queue[work_pb2.WorkResponse] = asyncio.Queue()
        self._arriving.put_nowait(work_pb2.WorkResponse(welcome=work_pb2.Welcome()))

    async def write(self, message: work_pb2.WorkRequest) -> None:
        if message.WhichOneof("message") != "credit":
            return
        self.credits += 1
        assigned = work_pb2.Assignment(tree_id=str(self.credits), epoch=1)
        self._arriving.put_nowait(work_pb2.WorkResponse(assignment=assigned))
        for _ in range(5):  # turns in which it is received
            await asyncio.sleep(0)

    def __aiter__(self) -> EagerStream:
        return self

    async def __anext__(self) -> work_pb2.WorkResponse:
        return await self._arriving.get()

    def cancel(self) -> None:
        pass


@contextmanager
def only_stream(stream: EagerStream, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    class Stub:
        def __init__(self, channel: grpc.aio.Channel) -> None:
            pass

        def Work(self) -> EagerStream:  # noqa: N802
            return stream

    with monkeypatch.context() as patched:
        patched.setattr(work_pb2_grpc, "WorkServiceStub", Stub)
        yield


async def test_a_tree_that_arrives_while_its_credit_is_being_written_wakes_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker, stream = Places(free=4), EagerStream()

    async def on_state(up: bool) -> None:
        pass

    with only_stream(stream, monkeypatch):
        link = GatewayLink("127.0.0.1:1", worker, on_state)
        running = asyncio.create_task(link.run())
        try:
            await begun(worker, 4)
            await asyncio.sleep(0.01)
        finally:
            running.cancel()
            await asyncio.wait([running])
    assert stream.credits == 4
