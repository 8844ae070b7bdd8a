"""The worker's stream to its gateway: what it serves, credit when it could start a tree, trees to run.

The stream may break at any time: running trees go on, the link connects again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf import json_format

from decoder_worker.policies import PolicyInfo, describe
from decoder_worker.worker import Worker
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2, work_pb2_grpc

# First wait and longest; doubled in between, until a stream has lasted for the longest.
RECONNECT_SECONDS = (0.2, 5.0)

log = EventLogger("decoder_worker.gateway_link")


class GatewayLink:
    """Keeps one worker connected to one gateway."""

    def __init__(
        self,
        target: str,
        worker: Worker,
        on_state: Callable[[bool], Awaitable[None]],
    ) -> None:
        """on_state: awaited with whether the worker takes trees from the gateway, whenever that changes."""
        self._on_state = on_state
        self._target = target
        self._worker = worker
        self._capacity = asyncio.Event()
        self._welcome = asyncio.Event()
        self._credit_out = False
        self._wait = RECONNECT_SECONDS[0]
        worker.on_capacity = self._capacity.set

    async def run(self) -> None:
        """Connects, and connects again, until cancelled or the worker leaves."""
        loop = asyncio.get_running_loop()
        async with open_channel(self._target) as channel:
            stub = work_pb2_grpc.WorkServiceStub(channel)
            while not self._worker.leaving.is_set():
                began = loop.time()
                try:
                    await self._work(stub.Work())
                    log.info("gateway_closed_stream", gateway=self._target)
                except grpc.aio.AioRpcError as error:
                    log.warning("gateway_unreachable", gateway=self._target, code=error.code().name)
                except grpc.aio.BaseError as error:  # gRPC's own, of a call that breaks while it is used
                    log.warning("gateway_unreachable", gateway=self._target, error=error)
                if self._welcome.is_set() and loop.time() - began >= RECONNECT_SECONDS[1]:
                    self._wait = RECONNECT_SECONDS[0]
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._wait):
                        await self._worker.leaving.wait()
                self._wait = min(2 * self._wait, RECONNECT_SECONDS[1])

    async def _work(self, stream: Any) -> None:
        """One stream from Hello to its end."""
        self._credit_out = False
        self._welcome.clear()
        try:
            with suppress(asyncio.InvalidStateError):  # ended already, as above
                await stream.write(work_pb2.WorkRequest(hello=self._hello()))
            async with task_group() as group:
                talking = group.create_task(self._talk(stream), name="credit")
                async for message in stream:
                    self._receive(message)
                talking.cancel()
        finally:
            stream.cancel()
            await self._on_state(False)

    async def _talk(self, stream: Any) -> None:
        """What the worker says after its hello: credit, then that it drains, then nothing more."""
        await self._welcome.wait()
        log.info("gateway_connected", gateway=self._target)
        with suppress(asyncio.InvalidStateError):  # the stream has just ended: whoever reads it learns why
            if not self._worker.draining:
                await self._on_state(True)
                await self._grant(stream)
                await self._on_state(False)
            await stream.write(work_pb2.WorkRequest(draining=work_pb2.Draining()))
            await self._worker.leaving.wait()
            # the gateway then ends the stream, behind whatever was on its way
            await stream.done_writing()

    async def _grant(self, stream: Any) -> None:
        """One credit at a time: the next when its tree has started and there is room for another."""
        while not self._worker.draining:
            self._capacity.clear()
            if self._worker.accepts_request and not self._credit_out:
                self._credit_out = True
                await stream.write(work_pb2.WorkRequest(credit=work_pb2.Credit(trees=1)))
            await self._capacity.wait()

    def _receive(self, message: work_pb2.WorkResponse) -> None:
        match message.WhichOneof("message"):
            case "welcome":
                self._welcome.set()
            case "assignment":
                assigned = message.assignment
                self._credit_out = False
                self._worker.begin(assigned.tree_id, assigned.epoch, assigned.search)
            case "cancellation":
                self._worker.cancel(message.cancellation.tree_id)

    def _hello(self) -> work_pb2.Hello:
        worker, engine = self._worker, self._worker.engine.info
        return work_pb2.Hello(
            worker=worker.config.name,
            model=engine.model,
            slots=engine.slots,
            max_context=engine.max_context,
            max_capacity=worker.config.max_capacity,
            policies=[_policy_message(info) for info in describe()],
            scorer=worker.config.scorer_kind,
        )


def _policy_message(info: PolicyInfo) -> pb.Policy:
    message = pb.Policy(
        name=info.name, summary=info.summary, source=info.source, needs_scores=info.needs_scores
    )
    for parameter in info.parameters:
        entry = message.parameters.add(
            name=parameter.name,
            symbol=parameter.symbol,
            description=parameter.description,
            source=parameter.source,
            type=parameter.kind,
            minimum=parameter.minimum,
            maximum=parameter.maximum,
            choices=parameter.choices,
        )
        for profile, default in parameter.defaults.items():
            json_format.Parse(json.dumps(default), entry.defaults[profile])
    return message
