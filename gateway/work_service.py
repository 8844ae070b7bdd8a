"""WorkService: one stream per decoder worker. It grants credit; the gateway sends trees and cancellations."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
from asyncio_throttle import Throttler

from gateway.answering import PEER_GONE, Answering
from gateway.dispatcher import Dispatcher
from gateway.fleet import Fleet, WorkerStream
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.status import Violation, invalid
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1 import work_pb2, work_pb2_grpc

log = EventLogger("gateway.work")

Context = grpc.aio.ServicerContext[work_pb2.WorkRequest, work_pb2.WorkResponse]


class WorkService(work_pb2_grpc.WorkServiceServicer):
    """rate: assignments a second to one worker."""

    def __init__(self, fleet: Fleet, dispatcher: Dispatcher, answering: Answering, rate: int) -> None:
        self._fleet = fleet
        self._dispatcher = dispatcher
        self._answering = answering
        self._rate = rate

    # The stub is typed for generators. A coroutine that writes is cancelled where it waits when the worker
    # goes away; a generator might be left suspended.
    async def Work(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[work_pb2.WorkRequest], context: Context
    ) -> None:
        async with self._answering(context):
            requests = aiter(request_iterator)
            hello = await anext(requests, None)
            stream = WorkerStream(_check_hello(hello))
            self._fleet.join(stream)
            log.info(
                "worker_joined", worker=stream.worker, model=stream.hello.model, slots=stream.hello.slots
            )
            try:
                await self._converse(stream, requests, context)
            finally:
                stream.close()
                self._fleet.leave(stream)
                self._dispatcher.give_back(stream.unsent)
                log.info("worker_left", worker=stream.worker, unsent=len(stream.unsent))
            if stream.closed_because is not None:
                raise stream.closed_because

    async def _converse(
        self, stream: WorkerStream, requests: AsyncIterator[work_pb2.WorkRequest], context: Context
    ) -> None:
        """Listens and sends until one of the two ends."""
        async with task_group() as tasks:
            listening = tasks.create_task(self._listen(stream, requests))
            sending = tasks.create_task(self._send(stream, context))
            await stream.closed.wait()
            listening.cancel()
            sending.cancel()

    async def _listen(self, stream: WorkerStream, requests: AsyncIterator[work_pb2.WorkRequest]) -> None:
        async for request in requests:
            match request.WhichOneof("message"):
                case "credit":
                    self._fleet.grant(stream, request.credit.trees)
                case "draining":
                    self._fleet.drain(stream)
                    log.info("worker_draining", worker=stream.worker)
                case _:
                    stream.close(invalid(Violation("message", "only credit and draining may follow hello")))
                    return
        stream.close()

    async def _send(self, stream: WorkerStream, context: Context) -> None:
        # it polls, and does not keep an order of its own: one sender per stream keeps it
        pace = Throttler(rate_limit=self._rate)
        message = work_pb2.WorkResponse(welcome=work_pb2.Welcome())
        while True:
            if message.HasField("assignment"):
                await pace.acquire()
            try:
                await context.write(message)
            except PEER_GONE:
                stream.close()
                return
            stream.sent(message)
            message = await stream.next()


def _check_hello(request: work_pb2.WorkRequest | None) -> work_pb2.Hello:
    """Raises INVALID_ARGUMENT when a stream does not open with a hello that can be worked with."""
    if request is None or not request.HasField("hello"):
        raise invalid(Violation("message", "the first message must be hello"))
    hello = request.hello
    bad = [
        Violation(f"hello.{name}", "must not be empty")
        for name in ("worker", "model")
        if not getattr(hello, name)
    ]
    bad += [
        Violation(f"hello.{name}", "must be at least 1")
        for name in ("slots", "max_context", "max_capacity")
        if not getattr(hello, name)
    ]
    if bad:
        raise invalid(*bad)
    return hello
