"""The decoder workers connected to this gateway: what each offers, its credit, what is to be sent to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc

from gateway.catalogue import Catalogue, runs
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import work_pb2


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a tree asks of its worker. model: empty for any. capacity: logical capacity; 0: not said. scorer:
    empty for the worker's own."""

    model: str
    policy: str
    capacity: float
    scorer: str = ""


class WorkerStream:
    """One worker's stream. Messages leave in the order in which they were put."""

    def __init__(self, hello: work_pb2.Hello) -> None:
        self.hello = hello
        self.credit = 0
        self.draining = False
        self.closed = asyncio.Event()
        # what the worker is told when the stream was closed from here
        self.closed_because: StatusError | None = None
        # trees being assigned to it, and whether they were cancelled meanwhile
        self._reserved: dict[str, bool] = {}
        self._outbox: asyncio.Queue[work_pb2.WorkResponse] = asyncio.Queue()
        self._unsent: dict[str, work_pb2.Assignment] = {}

    @property
    def worker(self) -> str:
        return self.hello.worker

    @property
    def unsent(self) -> list[work_pb2.Assignment]:
        """Assignments that were put and have not been sent."""
        return list(self._unsent.values())

    def serves(self, model: str) -> bool:
        return model in ("", self.hello.model)

    def can_run(self, wanted: Wanted) -> bool:
        """Whether it knows the policy, has the scores that it needs, and takes the capacity."""
        able = runs(self.hello, wanted.policy, wanted.scorer)
        return able and wanted.capacity <= self.hello.max_capacity

    def grant(self, trees: int) -> None:
        """The worker is ready to start this many more trees."""
        if not self.draining and not self.closed.is_set():
            self.credit += trees

    def drain(self) -> None:
        """The worker is about to stop: its credit is void, and it gets no more. What is being assigned to it
        it still takes."""
        self.draining, self.credit = True, 0

    def reserve(self, tree_id: str) -> None:
        """Spends one credit on a tree that is about to be assigned."""
        self.credit -= 1
        self._reserved[tree_id] = False

    def release(self, tree_id: str) -> None:
        """Gives the credit back: the tree was not assigned."""
        del self._reserved[tree_id]
        self.grant(1)

    def assign(self, assignment: work_pb2.Assignment) -> bool:
        """Puts a reserved tree; False: the stream has ended, so it has to be given to another worker."""
        cancelled = self._reserved.pop(assignment.tree_id)
        if self.closed.is_set():
            return False
        self._unsent[assignment.tree_id] = assignment
        self._outbox.put_nowait(work_pb2.WorkResponse(assignment=assignment))
        if cancelled:
            self.cancel(assignment.tree_id)
        return True

    def cancel(self, tree_id: str) -> None:
        """Tells the worker to end a tree; never before the tree itself has been sent."""
        if tree_id in self._reserved:
            self._reserved[tree_id] = True
        else:
            cancellation = work_pb2.Cancellation(tree_id=tree_id)
            self._outbox.put_nowait(work_pb2.WorkResponse(cancellation=cancellation))

    async def next(self) -> work_pb2.WorkResponse:
        """What is to be sent next."""
        return await self._outbox.get()

    def sent(self, message: work_pb2.WorkResponse) -> None:
        """The message is on its way."""
        self._unsent.pop(message.assignment.tree_id, None)

    def close(self, because: StatusError | None = None) -> None:
        """Ends the stream and voids its credit."""
        if not self.closed.is_set():
            self.closed_because, self.credit = because, 0
            self.closed.set()


class Fleet:
    """All connected workers. `changed` is set whenever a tree that had to wait may find a worker."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._streams: dict[str, WorkerStream] = {}
        self._closed_because: StatusError | None = None

    @property
    def catalogue(self) -> Catalogue:
        """What the workers offer that take new trees."""
        return Catalogue.of(stream.hello for stream in self._taking)

    @property
    def _taking(self) -> list[WorkerStream]:
        return [stream for stream in self._streams.values() if not stream.draining]

    @property
    def credit(self) -> int:
        """Trees that could be started now, all workers together."""
        return sum(stream.credit for stream in self._streams.values())

    def join(self, stream: WorkerStream) -> None:
        """Adds a worker. One that comes back before its old stream was seen to end takes its place."""
        if replaced := self._streams.pop(stream.worker, None):
            replaced.close(_replaced())
        self._streams[stream.worker] = stream
        if self._closed_because is not None:
            stream.close(self._closed_because)

    def leave(self, stream: WorkerStream) -> None:
        if self._streams.get(stream.worker) is stream:
            del self._streams[stream.worker]
        self.changed.set()

    def grant(self, stream: WorkerStream, trees: int) -> None:
        """The worker is ready to start this many more trees."""
        stream.grant(trees)
        self.changed.set()

    def drain(self, stream: WorkerStream) -> None:
        """The worker is about to stop: trees that waited for it may go to another one."""
        stream.drain()
        self.changed.set()

    def ready_for(self, wanted: Wanted) -> WorkerStream | None:
        """The worker with the most credit of those that can run a tree; None: it has to wait.

        A tree that no worker that serves its model can run goes to any of them, which then says why not.
        """
        serving = [stream for stream in self._taking if stream.serves(wanted.model)]
        able = [stream for stream in serving if stream.can_run(wanted)] or serving
        return max((stream for stream in able if stream.credit), key=lambda s: s.credit, default=None)

    def cancel(self, worker: str, tree_id: str) -> None:
        """Tells the owner of a running tree to end it. One that is connected elsewhere learns it when it
        renews its lease."""
        if stream := self._streams.get(worker):
            stream.cancel(tree_id)

    def close(self, because: StatusError) -> None:
        """Ends all streams, later ones too; their workers go to another gateway, and running trees go on."""
        self._closed_because = because
        for stream in self._streams.values():
            stream.close(because)


def _replaced() -> StatusError:
    return StatusError(
        grpc.StatusCode.ABORTED, "WORKER_REPLACED", "another stream has opened under the name of this worker"
    )
