"""A decoder worker without an engine that answers every search it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from tests.integration.gateway.harness import Gateway
from tests.integration.gateway.scripted_worker import LIVE, ScriptedWorker, Search, scripted_worker
from tree_store.model import (
    Batch,
    Failure,
    NodeChange,
    NodeState,
    Outcome,
    RoundRecord,
    Thought,
    TreeState,
    VoteRecord,
)

# what trace 2 writes, of which trace 3 inherits the first thought, and what trace 3 writes
FIRST, SECOND, OWN = "7 * 6 is é\n\n", "42\n\n", "or 43?\n\n"
REST = "</think>\n\nIt is 42."
OUTCOME = Outcome("42", 2, 1.5, 1.0, "It is 42.", (VoteRecord("42", 1.5, (2, 3)),))
_ENDED = {"finish_reason": "stop", "answer": "42"}


@dataclass(slots=True)
class AnsweringWorker:
    """What its searches do: two roots, a tournament that prunes the first and branches the second, two
    finished traces. A token budget ends them; a cancellation ends them before their next step.

    outcome, failure: how they end. may_end: while it is not set, they wait before their last step. pause:
    seconds between steps. progress: samples of the counters between them. searches: how many it was given.
    """

    outcome: Outcome = OUTCOME
    failure: Failure | None = None
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    pause: float = 0.02
    progress: int = 3
    searches: int = 0

    async def answer(self, search: Search, cancelled: asyncio.Event) -> None:
        batches = [*_STEPS, *[Batch(progress=True)] * self.progress]
        for batch in batches:
            await search.commit(batch)
            await asyncio.sleep(self.pause)
            if cancelled.is_set():
                break
        await _first_of(cancelled, self.may_end)
        if cancelled.is_set():
            await search.finish(TreeState.CANCELLED, await _closed(search), Outcome(None))
        elif self.failure is not None:
            await search.finish(TreeState.FAILED, await _closed(search), failure=self.failure)
        else:
            ended_by = "tokens" if search.search.budgets.tokens else ""
            await search.finish(TreeState.SUCCEEDED, _LAST, replace(self.outcome, ended_by=ended_by))


_STEPS: Sequence[Batch] = (
    Batch(
        nodes=(NodeChange(1, None, LIVE), NodeChange(2, None, LIVE)),
        fields={"prompt": "11", "parameters": '{"C": 2, "K": 1}', "model": "tiny"},
        progress=True,
    ),
    Batch(
        nodes=(
            NodeChange(
                1, NodeState.LIVE, mean_score=0.25, text="7\n\n", thoughts=(Thought(2, 0.25, None, 3),)
            ),
            NodeChange(
                2,
                NodeState.LIVE,
                mean_score=0.75,
                text=FIRST + SECOND,
                thoughts=(
                    Thought(5, 0.5, 0.25, len(FIRST.encode())),
                    Thought(8, 1.0, None, len((FIRST + SECOND).encode())),
                ),
            ),
        ),
        fields={"generated": "10"},
    ),
    Batch(
        nodes=(
            NodeChange(1, NodeState.LIVE, (NodeState.PRUNED,), reason="tournament", mean_score=0.25),
            NodeChange(3, None, LIVE, parent=2, branch_position=5, mean_score=0.5),
        ),
        rounds=(RoundRecord(1, 3, 2, 2, 0, 0.5, (1,), (2,)),),
        fields={"generated": "15"},
        progress=True,
    ),
    Batch(
        nodes=(
            NodeChange(
                3, NodeState.LIVE, mean_score=0.5, text=OWN, thoughts=(Thought(9, None, None, len(OWN)),)
            ),
        )
    ),
)
_LAST = Batch(
    nodes=(
        NodeChange(2, NodeState.LIVE, (NodeState.FINISHED,), text=REST, fields={**_ENDED, "winning": "1"}),
        NodeChange(3, NodeState.LIVE, (NodeState.FINISHED,), text=REST, fields=_ENDED),
    ),
    fields={"generated": "20"},
)


async def _closed(search: Search) -> Batch:
    """Cancels what still counts."""
    nodes = await search.store.nodes(search.tree_id, 1, 10)
    counting = [n.node for n in nodes if n.state is NodeState.LIVE]
    return Batch(nodes=tuple(NodeChange(n, NodeState.LIVE, (NodeState.CANCELLED,)) for n in counting))


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@asynccontextmanager
async def answering_worker(gateway: Gateway) -> AsyncIterator[AnsweringWorker]:
    """Connected to the gateway for the length of the block."""
    answering = AnsweringWorker()
    answering.may_end.set()
    async with scripted_worker(gateway.channel, gateway.store) as worker:
        await gateway.knows_policies()
        await _announce(worker, 0)
        serving = asyncio.create_task(_serve(answering, worker))
        try:
            yield answering
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


async def _serve(answering: AnsweringWorker, worker: ScriptedWorker) -> None:
    cancelled: dict[str, asyncio.Event] = {}
    running: set[str] = set()
    async with asyncio.TaskGroup() as searches:
        searches.create_task(_listen(worker, cancelled))
        await worker.grant(1000)  # once: a stream must not be written to by two at a time
        while True:
            assigned = await worker.assignments.get()
            answering.searches += 1
            search = Search(worker.store, assigned.tree_id, assigned.epoch, assigned.search)
            asked = cancelled.setdefault(search.tree_id, asyncio.Event())
            running.add(search.tree_id)
            searches.create_task(_run(answering, worker, search, asked, running))


async def _run(
    answering: AnsweringWorker,
    worker: ScriptedWorker,
    search: Search,
    cancelled: asyncio.Event,
    running: set[str],
) -> None:
    await _announce(worker, len(running))
    try:
        await answering.answer(search, cancelled)
    except Exception as error:
        # or its client would wait in vain
        failure = Failure(2, "TEST_WORKER_FAILED", repr(error))
        await search.finish(TreeState.FAILED, await _closed(search), failure=failure)
        raise
    running.discard(search.tree_id)
    await _announce(worker, len(running))


async def _announce(worker: ScriptedWorker, trees: int) -> None:
    fields = {"model": "tiny", "slots": "4", "free_slots": "3", "trees": str(trees), "state": "serving"}
    await worker.store.announce_worker("w1", fields, 3600.0)


async def _listen(worker: ScriptedWorker, cancelled: dict[str, asyncio.Event]) -> None:
    while True:
        cancelled.setdefault(await worker.cancellations.get(), asyncio.Event()).set()
