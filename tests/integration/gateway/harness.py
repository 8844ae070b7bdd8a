"""A gateway on a free port, in this process, and what tests do with one."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from gateway.config import GatewayConfig
from gateway.main import serve
from thoughtbeam.runtime.rpc import KEEPALIVE, Keepalive, open_channel
from thoughtbeam.runtime.status import StatusError, from_rpc_error
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import reasoning_pb2_grpc
from tree_store.model import TreeState
from tree_store.store import TreeStore

PATIENCE = 60.0  # seconds; for what should take milliseconds


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call of Reason sent, and the status it ended with, if it did not end well."""

    events: list[pb.TreeEvent]
    result: pb.Result | None
    error: StatusError | None


@dataclass(frozen=True, slots=True)
class Gateway:
    """A running gateway with a channel to it and a store of one's own on the same Redis."""

    port: int
    channel: grpc.aio.Channel
    store: TreeStore
    stop: Callable[[], Awaitable[None]]

    @property
    def stub(self) -> Any:
        return reasoning_pb2_grpc.ReasoningServiceStub(self.channel)

    def reason(self, request: pb.ReasonRequest) -> Any:
        """The running call."""
        return self.stub.Reason(request)

    async def ask(self, request: pb.ReasonRequest) -> Answer:
        """The whole answer."""
        return await read(self.reason(request))

    async def get(self, tree_id: str) -> pb.Tree:
        return (await self.stub.GetTree(pb.GetTreeRequest(name=f"trees/{tree_id}"))).tree

    async def knows_policies(self) -> None:
        """Waits until a worker's hello has been heard."""

        async def known() -> bool:
            return bool((await self.stub.ListPolicies(pb.ListPoliciesRequest())).policies)

        await eventually(known)

    async def knows_no_policies(self) -> None:
        """Waits until no worker is connected any more."""

        async def unknown() -> bool:
            return not (await self.stub.ListPolicies(pb.ListPoliciesRequest())).policies

        await eventually(unknown)


async def read(call: Any) -> Answer:
    """Reads a call of Reason to its end."""
    events: list[pb.TreeEvent] = []
    result = None
    try:
        async with asyncio.timeout(PATIENCE):
            # not `async for`: a call must not be read in two ways
            while (message := await call.read()) is not grpc.aio.EOF:
                if message.HasField("result"):
                    result = message.result
                else:
                    assert result is None, "the result is the last message"
                    events.append(message.event)
    except grpc.aio.AioRpcError as error:
        return Answer(events, result, from_rpc_error(error))
    return Answer(events, result, None)


async def watched(call: Any) -> list[pb.TreeEvent]:
    """All events of a call of WatchTree. Raises AioRpcError."""
    events: list[pb.TreeEvent] = []
    async with asyncio.timeout(PATIENCE):
        while (message := await call.read()) is not grpc.aio.EOF:
            events.append(message.event)
    return events


async def refused(call: Awaitable[Any]) -> StatusError:
    """The error that a call ends with."""
    async with asyncio.timeout(PATIENCE):
        try:
            await call
        except grpc.aio.AioRpcError as error:
            return from_rpc_error(error)
    raise AssertionError("the call ended well")


async def read_until(call: Any, wanted: Callable[[pb.TreeEvent], bool]) -> pb.TreeEvent:
    """Reads events up to the first that is wanted."""
    async with asyncio.timeout(PATIENCE):
        while True:
            message = await call.read()
            if message.HasField("event") and wanted(message.event):
                return message.event


def is_state(state: int) -> Callable[[pb.TreeEvent], bool]:
    return lambda event: event.HasField("tree") and event.tree.state == state


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Waits for something that is going to be true."""
    async with asyncio.timeout(PATIENCE):
        while not await true():  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def reaches(store: TreeStore, tree_id: str, state: TreeState) -> None:
    async def there() -> bool:
        return (await store.tree(tree_id)).state is state

    await eventually(there)


async def queue_shrinks_to(store: TreeStore, length: int) -> None:
    """An entry leaves the queue just after its tree has."""

    async def there() -> bool:
        return await store.queue_length() <= length

    await eventually(there)


def request(**changed: Any) -> pb.ReasonRequest:
    """A good request with an id of its own. changed: fields of the search; `request_id` and
    `cancel_on_disconnect` go where they belong; `deadline` is in seconds."""
    made = pb.ReasonRequest(
        request_id=changed.pop("request_id", str(uuid.uuid4())),
        cancel_on_disconnect=changed.pop("cancel_on_disconnect", False),
    )
    if "deadline" in changed:
        made.search.budgets.deadline.FromMilliseconds(int(changed.pop("deadline") * 1000))
    made.search.parameters.update(changed.pop("parameters", {}))
    made.search.MergeFrom(pb.Search(**{"question": "What is 6 x 7?", "policy": "gambit", **changed}))
    return made


@asynccontextmanager
async def running_gateway(config: GatewayConfig, keepalive: Keepalive = KEEPALIVE) -> AsyncIterator[Gateway]:
    """A gateway for the length of the block; `stop` ends it before, as SIGTERM would. keepalive: its own."""
    stopping = asyncio.Event()
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    config = dataclasses.replace(config, listen="127.0.0.1:0")
    serving = asyncio.create_task(serve(config, stopping, listening.set_result, keepalive))
    await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        await serving

    async def stop() -> None:
        stopping.set()
        await serving

    store = TreeStore.connect(config.redis_url)
    try:
        async with open_channel(f"127.0.0.1:{listening.result()}") as channel:
            yield Gateway(listening.result(), channel, store, stop)
    finally:
        await stop()
        await store.close()
