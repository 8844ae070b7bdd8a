"""A decoder worker without an engine: it speaks the real WorkService and writes to the real tree store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf import struct_pb2

from thoughtbeam.v1 import reasoning_pb2 as pb
from thoughtbeam.v1 import work_pb2, work_pb2_grpc
from tree_store.model import (
    Batch,
    Failure,
    NodeChange,
    NodeState,
    Outcome,
    RoundRecord,
    TreeState,
    VoteRecord,
)
from tree_store.store import TreeStore

POLICIES = [
    pb.Policy(
        name="gambit",
        summary="Thought-level beam search",
        source="arXiv 2608.08020",
        needs_scores=True,
        parameters=[
            pb.PolicyParameter(
                name="C",
                type="int",
                minimum=1,
                defaults={
                    "paper": struct_pb2.Value(number_value=256),
                    "tiny": struct_pb2.Value(number_value=24),
                },
            ),
            pb.PolicyParameter(name="K", type="int", minimum=0),
        ],
    ),
    pb.Policy(name="vanilla", summary="One trace"),
]

LIVE = (NodeState.PENDING, NodeState.LIVE)


@dataclass(slots=True)
class Search:
    """One assigned tree, to be written to as a worker would."""

    store: TreeStore
    tree_id: str
    epoch: int
    search: pb.Search
    seq: int = 0

    async def commit(self, batch: Batch) -> None:
        self.seq += 1
        await self.store.commit(self.tree_id, self.epoch, self.seq, batch)

    async def finish(
        self,
        state: TreeState,
        batch: Batch | None = None,
        outcome: Outcome | None = None,
        failure: Failure | None = None,
    ) -> None:
        self.seq += 1
        await self.store.finish(self.tree_id, self.epoch, self.seq, batch or Batch(), state, outcome, failure)

    async def answer(self, text: str = "42") -> None:
        """A whole search: one root, which finishes with this answer."""
        await self.commit(Batch(nodes=(NodeChange(1, None, LIVE),)))
        finished = NodeChange(
            1,
            NodeState.LIVE,
            (NodeState.FINISHED,),
            reason="stop",
            fields={"finish_reason": "stop", "answer": text},
        )
        outcome = Outcome(text, 1, 1.0, 1.0, f"The answer is {text}.", (VoteRecord(text, 1.0, (1,)),))
        await self.finish(TreeState.SUCCEEDED, Batch(nodes=(finished,)), outcome)

    async def long_search(self) -> None:
        """Two roots, a tournament that prunes the first and branches the second, two finished traces."""
        await self.commit(
            Batch(
                nodes=(NodeChange(1, None, LIVE), NodeChange(2, None, LIVE)),
                fields={"prompt": "11", "parameters": '{"C": 2, "K": 1, "refill": true}', "model": "tiny"},
            )
        )
        await self.commit(
            Batch(
                nodes=(
                    NodeChange(1, NodeState.LIVE, (NodeState.PRUNED,), reason="tournament", mean_score=0.25),
                    NodeChange(
                        2,
                        NodeState.LIVE,
                        mean_score=0.75,
                        fields={"unique_tokens": "3", "total_tokens": "3"},
                        tokens=(5, 6, 7),
                        text="so\n\n",
                    ),
                    NodeChange(3, None, LIVE, parent=2, branch_position=3, mean_score=0.75),
                ),
                rounds=(RoundRecord(1, 2, 2, 2, 0, 0.5, (1,), (2,)),),
                fields={"generated": "6", "recomputed": "1"},
                progress=True,
            )
        )
        ended = {"finish_reason": "stop", "answer": "42", "winning": "1"}
        votes = (VoteRecord("42", 1.5, (2, 3)),)
        await self.finish(
            TreeState.SUCCEEDED,
            Batch(
                nodes=(
                    NodeChange(2, NodeState.LIVE, (NodeState.FINISHED,), fields=ended),
                    NodeChange(3, NodeState.LIVE, (NodeState.FINISHED,), fields={**ended, "winning": "0"}),
                ),
                fields={"generated": "9"},
            ),
            Outcome("42", 2, 1.5, 1.0, "It is 42.", votes, ended_by="", degraded=False),
        )


@dataclass(slots=True)
class ScriptedWorker:
    """One stream of a worker."""

    store: TreeStore
    stream: Any
    assignments: asyncio.Queue[work_pb2.Assignment] = field(default_factory=asyncio.Queue)
    cancellations: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    error: grpc.aio.AioRpcError | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def grant(self, trees: int = 1) -> None:
        await self.send(work_pb2.WorkRequest(credit=work_pb2.Credit(trees=trees)))

    async def send(self, message: work_pb2.WorkRequest) -> None:
        await self.stream.write(message)

    async def take(self) -> Search:
        """The next assigned tree."""
        async with asyncio.timeout(60):
            assigned = await self.assignments.get()
        return Search(self.store, assigned.tree_id, assigned.epoch, assigned.search)

    async def told_to_cancel(self) -> str:
        """The id of the next tree that is to be cancelled."""
        async with asyncio.timeout(60):
            return await self.cancellations.get()

    async def disconnect(self) -> None:
        """The stream breaks, as when the process dies."""
        self.stream.cancel()
        await self.ended.wait()

    async def listen(self) -> None:
        try:
            async for message in self.stream:
                if message.HasField("assignment"):
                    self.assignments.put_nowait(message.assignment)
                elif message.HasField("cancellation"):
                    self.cancellations.put_nowait(message.cancellation.tree_id)
        except grpc.aio.AioRpcError as error:
            self.error = error
        except asyncio.CancelledError:
            if not self.stream.cancelled():
                raise
        finally:
            self.ended.set()


@asynccontextmanager
async def scripted_worker(
    channel: grpc.aio.Channel,
    store: TreeStore,
    worker: str = "w1",
    model: str = "tiny",
    *,
    max_capacity: int = 64,
    policies: Sequence[pb.Policy] = POLICIES,
    scorer: str = "mlp",
) -> AsyncIterator[ScriptedWorker]:
    """A worker that has said hello; its stream ends with the block."""
    stream: Any = work_pb2_grpc.WorkServiceStub(channel).Work()
    hello = work_pb2.Hello(
        worker=worker,
        model=model,
        slots=4,
        max_context=1024,
        max_capacity=max_capacity,
        policies=policies,
        scorer=scorer,
    )
    await stream.write(work_pb2.WorkRequest(hello=hello))
    connected = ScriptedWorker(store, stream)
    listening = asyncio.create_task(connected.listen())
    try:
        yield connected
    finally:
        stream.cancel()
        await listening
