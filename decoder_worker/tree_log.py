"""The write-behind log of one search: what the Tree View has changed, on its way to the tree store.

Changes are noted in memory as they happen and written as one batch, whatever has gathered since the last
write; nothing on the token path waits for Redis. Batches are numbered, so that a write whose reply was lost
can be sent again, and fenced by the epoch, so that a worker that lost its lease changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from decoder_worker.patience import until_available
from decoder_worker.tree_view import Trace
from tree_store.model import (
    Batch,
    NodeChange,
    NodeState,
    Outcome,
    RoundRecord,
    Thought,
    TreeState,
)
from tree_store.store import TreeStore

PROGRESS_SECONDS = 0.5  # a progress event at most this often
WRITE_PAUSE_SECONDS = 0.05  # lets a few engine steps and their scores gather into one write


@dataclass(slots=True)
class _Draft:
    """Changes of one node that are not written yet."""

    trace: Trace
    before: NodeState | None
    path: list[NodeState] = field(default_factory=list)
    reason: str = ""
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    thoughts: list[Thought] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    history: list[bytes] = field(default_factory=list)
    winning: bool = False

    def change(self) -> NodeChange:
        trace = self.trace
        fields = {
            "thoughts": str(trace.thought_count),
            "unique_tokens": str(trace.own_tokens),
            "total_tokens": str(trace.total_tokens),
        }
        if trace.finish_order is not None:
            fields |= {"finish_reason": trace.finish_reason, "finish_order": str(trace.finish_order)}
            if trace.answer is not None:
                fields["answer"] = trace.answer
        if self.winning:
            fields["winning"] = "1"
        return NodeChange(
            node=trace.number,
            before=self.before,
            path=tuple(self.path),
            reason=self.reason,
            parent=trace.parent.number if trace.parent else None,
            branch_position=trace.branch_position,
            mean_score=trace.mean_score,
            fields=fields,
            tokens=tuple(self.tokens),
            text=self.text,
            thoughts=tuple(self.thoughts),
            confidences=tuple(self.confidences),
            history=b"".join(self.history),
        )


@dataclass(slots=True)
class _Notes:
    """What goes into one batch. Drafts in the order in which the nodes moved."""

    drafts: dict[int, _Draft] = field(default_factory=dict)
    fields: dict[str, str] = field(default_factory=dict)
    rounds: list[RoundRecord] = field(default_factory=list)
    policy_state: Callable[[], str] | None = None


class TreeLog:
    """Collects and writes the changes of one running tree; the search notes, `run` writes."""

    def __init__(self, store: TreeStore, tree_id: str, epoch: int) -> None:
        self.tree_id = tree_id
        self.epoch = epoch
        self._store = store
        self._seq = 0
        self._unanswered: Batch | None = None  # sent under the number `_seq`; may or may not be applied
        self._notes = [_Notes()]  # written from the front; changes are noted in the last
        self._noted: dict[int, NodeState] = {}  # where the notes leave each node
        self._dirty = asyncio.Event()
        self._closing = asyncio.Event()
        self._last_progress = 0.0

    # ---- notes; synchronous, called by the search

    def restore(self, trace: Trace, stored: NodeState) -> None:
        """Tells in which state the store has a node that an earlier owner wrote."""
        self._noted[trace.number] = stored

    def moved(self, trace: Trace, reason: str = "") -> None:
        """The trace is new in its state, or new altogether.

        A batch tells the feed of one node after the other. So a node that moves again after others have moved
        does so in the next batch: its branch is born before it is gone. And one that moves again after a move
        with a reason does, for that reason would be told of the later move.
        """
        drafts = self._notes[-1].drafts
        before = drafts.get(trace.number)
        if before is not None and before.path and (before.reason or next(reversed(drafts)) != trace.number):
            self._begin_batch()
        draft = self._draft(trace)
        if not draft.path:
            drafts = self._notes[-1].drafts
            drafts[trace.number] = drafts.pop(trace.number)
        draft.path.append(trace.state)
        draft.reason = reason or draft.reason
        self._noted[trace.number] = trace.state

    def checkpoint(
        self, trace: Trace, tokens: Sequence[int], text: str, confidences: Sequence[float] = ()
    ) -> None:
        """More of the trace's own tokens, with their text, up to a boundary or its end. confidences: one for
        each of them, where the policy asks for them."""
        draft = self._draft(trace)
        draft.tokens.extend(tokens)
        draft.text += text
        draft.confidences.extend(confidences)

    def thought(self, trace: Trace, thought: Thought, projected: bytes = b"") -> None:
        """A thought of its own, with its final score. projected: what a scorer with a history keeps of it."""
        draft = self._draft(trace)
        draft.thoughts.append(thought)
        if projected:
            draft.history.append(projected)

    def winner(self, trace: Trace) -> None:
        """The trace lies on the path to the answer."""
        self._draft(trace).winning = True

    def round(self, record: RoundRecord) -> None:
        """A tournament begins: what it does is noted next, and written as one batch with this record."""
        if self._notes[-1].drafts:
            self._begin_batch()
        self._notes[-1].rounds.append(record)
        self._dirty.set()

    def fields(self, **values: object) -> None:
        """Fields of the tree itself."""
        self._notes[-1].fields.update({name: str(value) for name, value in values.items()})
        self._dirty.set()

    def policy_state(self, dump: Callable[[], str]) -> None:
        """The policy's state has changed; `dump` is called when it is written."""
        self._notes[-1].policy_state = dump
        self._dirty.set()

    # ---- writes

    async def run(self) -> None:
        """Writes what gathers, until `close`. Raises StaleEpochError once the tree has another owner."""
        while not self._closing.is_set():
            await self._dirty.wait()
            if not self._closing.is_set():
                await self._write(self._commit)
                if len(self._notes) == 1:  # what is in whole batches gathers no more
                    await self._pause()

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WRITE_PAUSE_SECONDS):
                await self._closing.wait()

    def close(self) -> None:
        """Makes `run` return after the write under way; the rest stays for `finish`."""
        self._closing.set()
        self._dirty.set()

    async def finish(self, state: TreeState, outcome: Outcome) -> None:
        """Writes the rest and ends the tree, in one step. `run` has returned."""

        async def end(batch: Batch) -> None:
            await self._store.finish(self.tree_id, self.epoch, self._seq, batch, state, outcome, None)

        while len(self._notes) > 1:
            await self._write(self._commit)
        await self._write(end)

    async def hand_back(self) -> None:
        """Writes the rest and returns the tree to the queue. `run` has ended, wherever it was."""
        if self._unanswered is not None:
            await self._commit(self._unanswered)
        while self._dirty.is_set():
            await self._write(self._commit)
        await self._store.requeue(self.tree_id, self.epoch)

    async def _commit(self, batch: Batch) -> None:
        await self._store.commit(self.tree_id, self.epoch, self._seq, batch)

    async def _write(self, send: Callable[[Batch], Awaitable[None]]) -> None:
        batch = self._unanswered = self._take()
        self._seq += 1
        # the number makes a repetition safe; meanwhile the search goes on and changes gather
        await until_available(lambda: send(batch), tree_id=self.tree_id)
        self._unanswered = None

    def _take(self) -> Batch:
        """The oldest notes as a batch."""
        now = time.monotonic()
        progress = now - self._last_progress >= PROGRESS_SECONDS
        if progress:
            self._last_progress = now
        notes = self._notes.pop(0)
        if not self._notes:
            self._notes.append(_Notes())
            self._dirty.clear()
        return Batch(
            nodes=tuple(draft.change() for draft in notes.drafts.values()),
            fields=notes.fields,
            policy_state=notes.policy_state() if notes.policy_state else None,
            rounds=tuple(notes.rounds),
            progress=progress,
        )

    def _begin_batch(self) -> None:
        self._notes.append(_Notes())

    def _draft(self, trace: Trace) -> _Draft:
        self._dirty.set()
        drafts = self._notes[-1].drafts
        draft = drafts.get(trace.number)
        if draft is None:
            draft = drafts[trace.number] = _Draft(trace, self._noted.get(trace.number))
        return draft
