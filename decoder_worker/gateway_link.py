"""The worker's stream to its gateway: what it serves, credit when it could start a tree, trees to run.

The stream may break at any time: running trees go on, the link connects again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
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

RECONNECT_SECONDS = (0.2, 5.0)  # first wait and longest; doubled in between

log = EventLogger("decoder_worker.gateway_link")


class GatewayLink:
    """Keeps one worker connected to one gateway."""

    def __init__(
        self,
        target: str,
        worker: Worker,
        scorer_kind: str,
        on_state: Callable[[bool], Awaitable[None]],
    ) -> None:
        """on_state: awaited with true whenever a stream has been opened, with false when it has ended."""
        self._on_state = on_state
        self._target = target
        self._worker = worker
        self._scorer_kind = scorer_kind
        self._capacity = asyncio.Event()
        self._credit_out = False
        self._wait = RECONNECT_SECONDS[0]
        worker.on_capacity = self._capacity.set

    async def run(self) -> None:
        """Connects, and connects again, until cancelled."""
        async with open_channel(self._target) as channel:
            stub = work_pb2_grpc.WorkServiceStub(channel)
            while True:
                try:
                    await self._work(stub.Work())
                    log.warning("gateway_closed_stream", gateway=self._target)
                except grpc.aio.AioRpcError as error:
                    log.warning("gateway_unreachable", gateway=self._target, code=error.code().name)
                await asyncio.sleep(self._wait)
                self._wait = min(2 * self._wait, RECONNECT_SECONDS[1])

    async def _work(self, stream: Any) -> None:
        """One stream from Hello to its end."""
        await stream.write(work_pb2.WorkRequest(hello=self._hello()))
        self._credit_out = False
        try:
            async with task_group() as group:
                granting = group.create_task(self._grant(stream), name="credit")
                async for message in stream:
                    self._receive(message)
                granting.cancel()
        finally:
            stream.cancel()
            await self._on_state(False)

    async def _grant(self, stream: Any) -> None:
        """One credit at a time: the next when its tree has started and there is room for another."""
        await stream.wait_for_connection()
        self._wait = RECONNECT_SECONDS[0]
        await self._on_state(True)
        log.info("gateway_connected", gateway=self._target)
        while True:
            self._capacity.clear()
            if self._worker.accepts_request and not self._credit_out:
                self._credit_out = True
                await stream.write(work_pb2.WorkRequest(credit=work_pb2.Credit(trees=1)))
            await self._capacity.wait()

    def _receive(self, message: work_pb2.WorkResponse) -> None:
        match message.WhichOneof("message"):
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
            scorer=self._scorer_kind,
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
