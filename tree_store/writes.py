"""Transitions of trees and their nodes, each one script. All of them may be repeated after a lost reply."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_store.batches import Ending, encode_batch, encode_nodes, ending
from tree_store.connection import text
from tree_store.dispatch_queue import DispatchQueue
from tree_store.errors import OpenNodesError, TransitionRefusedError, translated
from tree_store.keys import TREES, TreeKeys
from tree_store.model import (
    COUNTING,
    Batch,
    Failure,
    NewTree,
    NodeChange,
    NodeState,
    Outcome,
    TreeRecord,
    TreeState,
)
from tree_store.reads import TreeReads

DEADLINE_EXCEEDED = 4  # google.rpc.Code
_PASSED = Failure(
    DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "the deadline passed before a worker took the request"
)
_NOT_RESUMED = Failure(
    DEADLINE_EXCEEDED,
    "DEADLINE_EXCEEDED",
    "the request lost its worker and the deadline passed before another one took it",
)
# Seconds after its deadline in which a tree that has run is still given to a worker, to hold the vote.
LATE_VOTE = 60.0
# The nodes of a tree that ends early change only when it gets another owner in between.
_END_ATTEMPTS = 5
_NODES_PER_STEP = 250


@dataclass(frozen=True, slots=True)
class Assigned:
    """A tree that a worker now owns. epoch: carried by all its writes. search: the Search message as JSON."""

    epoch: int
    search: str


class TreeWrites(TreeReads, DispatchQueue):
    """Everything that changes a tree."""

    async def create(self, new: NewTree) -> bool:
        """Creates a queued tree; `enqueue` it next. False: it exists already, with the same digest.

        Raises RequestReusedError when it exists with another digest, StoreFullError.
        """
        keys = TreeKeys(new.tree_id)
        # First the list: an id without a tree is dropped by the sweep, a tree without an id would be lost.
        await self._run("register", [TREES], [new.tree_id])
        fields = {
            "search": new.search,
            "model": new.model,
            "policy": new.policy,
            "profile": new.profile,
            "question": new.question,
            "max_events": str(new.max_events),
        }
        arguments = [new.tree_id, new.digest, uuid.uuid4().hex, f"{new.deadline:.3f}"]
        arguments += [part for pair in fields.items() for part in pair]
        while (created := await self._run("create", keys.of_creation(), arguments)) < 0:
            await self._finish_deletion(keys)
        if created:
            # again: the deletion of an earlier tree of this id may have come in between
            await self._run("register", [TREES], [new.tree_id])
        return bool(created)

    async def assign(self, tree_id: str, worker: str, lease: float) -> Assigned:
        """queued → running: a new epoch, owned by `worker` for `lease` seconds.

        Raises TreeNotFoundError, TransitionRefusedError (not queued, or its deadline passed before it ran),
        StoreFullError.
        """
        arguments = [worker, f"{lease:.3f}", uuid.uuid4().hex]
        epoch, search = await self._run("assign", TreeKeys(tree_id).of_tree(), arguments)
        return Assigned(epoch, text(search))

    async def renew(self, tree_id: str, epoch: int, lease: float) -> bool:
        """Extends the lease to `lease` seconds from now. True: cancellation was asked for.

        Raises TreeNotFoundError, StaleEpochError.
        """
        return bool(await self._run("renew", TreeKeys(tree_id).of_tree(), [epoch, f"{lease:.3f}"]))

    async def commit(self, tree_id: str, epoch: int, seq: int, batch: Batch) -> None:
        """Applies a batch whole; one that was applied before (seq not above the last) is acknowledged.

        seq: 1 for the first batch of an epoch, then one more each. Raises ValueError (fields that the store
        keeps itself), TreeNotFoundError, StaleEpochError, SequenceGapError, TransitionRefusedError (a node's
        path), StoreFullError; then nothing is written.
        """
        await self._run("commit", *encode_batch(TreeKeys(tree_id), epoch, seq, batch))

    async def finish(
        self,
        tree_id: str,
        epoch: int,
        seq: int,
        batch: Batch,
        state: TreeState,
        outcome: Outcome | None,
        failure: Failure | None,
    ) -> None:
        """Applies the last batch and ends the tree, in one script; raises what `commit` raises.

        state: SUCCEEDED (with an outcome), FAILED (with a failure) or CANCELLED. Raises OpenNodesError while
        nodes still count. Works when Redis is full: what was accepted has to be able to end.
        """
        if state is TreeState.EXPIRED:
            raise ValueError("a running tree does not expire")
        keys = TreeKeys(tree_id)
        await self._run("finish", *encode_batch(keys, epoch, seq, batch, ending(state, outcome, failure)))
        await self._retain(keys)

    async def fail(self, tree_id: str, epoch: int, failure: Failure) -> None:
        """running → failed, whatever nodes are open and whichever batch came last. Works when Redis is full.

        Raises TreeNotFoundError, StaleEpochError.
        """
        await self._end_early("fail", tree_id, ending(TreeState.FAILED, None, failure), epoch)

    async def requeue(self, tree_id: str, epoch: int) -> None:
        """running → queued: its owner hands it back. Puts it into the queue again, or cancels it if asked to.

        Raises TreeNotFoundError, StaleEpochError, TransitionRefusedError (it has ended).
        """
        cancel = await self._run("requeue", TreeKeys(tree_id).of_tree(), [epoch])
        await self._dispatch_again(tree_id, cancel=bool(cancel))

    async def requeue_expired(self, tree_id: str) -> bool:
        """running → queued if the lease has run out, then as `requeue`. Whether it had.

        Raises TreeNotFoundError.
        """
        cancel = await self._run("requeue_expired", TreeKeys(tree_id).of_tree(), [])
        if cancel < 0:
            return False
        await self._dispatch_again(tree_id, cancel=bool(cancel))
        return True

    async def request_cancel(self, tree_id: str) -> TreeRecord:
        """Cancels a queued tree, asks the owner of a running one to; one that has ended stays as it is.

        Raises TreeNotFoundError.
        """
        await self._end_early("cancel", tree_id, ending(TreeState.CANCELLED, None, None))
        return await self.tree(tree_id)

    async def expire(self, tree_id: str) -> bool:
        """queued → expired if the deadline has passed and it never ran. Whether it is expired now.

        Raises TreeNotFoundError.
        """
        return await self._end_early("expire", tree_id, ending(TreeState.EXPIRED, None, _PASSED))

    async def give_up(self, tree_id: str) -> bool:
        """queued → failed if it has run and the deadline is LATE_VOTE ago. Whether it has failed now.

        Raises TreeNotFoundError.
        """
        end = ending(TreeState.FAILED, None, _NOT_RESUMED)
        return await self._end_early("give_up", tree_id, end, f"{LATE_VOTE:.3f}")

    async def delete(self, tree_id: str) -> None:
        """Deletes a tree that has ended, and everything of it: for readers at once, in Redis in steps.

        Cut short, it goes on when it is called again, or when a tree of the same id is created.

        Raises TreeNotFoundError, TransitionRefusedError (it has not ended).
        """
        keys = TreeKeys(tree_id)
        await self._run("delete", keys.of_deletion(), [])
        await self._finish_deletion(keys)

    async def _finish_deletion(self, keys: TreeKeys) -> None:
        """Takes away what is left of a deleted tree, in steps; does nothing when nothing is."""
        with translated():
            nodes, entry = await self._redis.hmget(keys.deleted, "nodes", "queue_entry")
        for numbers in _in_steps(int(nodes or 0)):
            await self._run("delete_nodes", [keys.deleted, *keys.of_nodes(numbers)], [])
        if entry:
            await self.drop(text(entry))
        with translated():
            await self._redis.zrem(TREES, keys.tree_id)
            await self._redis.unlink(keys.deleted)
            followed = await self._redis.exists(keys.meta)
        if followed:
            # another deletion was quicker, and a new tree of the same id has come since
            await self._run("register", [TREES], [keys.tree_id])

    async def _dispatch_again(self, tree_id: str, *, cancel: bool) -> None:
        if cancel:
            await self.request_cancel(tree_id)
        else:
            await self.enqueue(tree_id)

    async def _end_early(self, script: str, tree_id: str, end: Ending, *arguments: str | int) -> bool:
        """Ends a tree together with the nodes that still count. Whether it did end so.

        arguments: further ones of the script.
        """
        keys = TreeKeys(tree_id)
        changes: Sequence[NodeChange] = ()
        for attempt in range(1, _END_ATTEMPTS + 1):
            try:
                names, body = encode_nodes(keys, changes, end)
                ended = bool(await self._run(script, names, [*body, *arguments]))
                break
            except TransitionRefusedError as error:
                about_nodes = isinstance(error, OpenNodesError) or error.node is not None
                if not about_nodes or attempt == _END_ATTEMPTS:
                    raise
                changes = await self._open_nodes(keys)
        if ended:
            await self._retain(keys)
            with translated():
                entry = text(await self._redis.hget(keys.meta, "queue_entry"))
            if entry:
                await self.drop(entry)
        return ended

    async def _open_nodes(self, keys: TreeKeys) -> list[NodeChange]:
        """The cancellation of every node that still counts."""
        states = [state for state in NodeState if state in COUNTING]
        with translated():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for state in states:
                    pipeline.zrange(keys.state(state), 0, -1)
                found = await pipeline.execute()
        return [
            NodeChange(int(node), state, (NodeState.CANCELLED,), reason="tree_ended")
            for state, nodes in zip(states, found, strict=True)
            for node in nodes
        ]

    async def _retain(self, keys: TreeKeys) -> None:
        """Gives the keys of the nodes the expiry that the end of their tree has set.

        In steps, and not in the script that ends the tree: they have an expiry from their creation, so that
        nothing is left behind should this be cut short.
        """
        with translated():
            expires, known = await self._redis.hmget(keys.meta, "expires", "nodes")
        if expires is None:
            return
        at = int(float(expires) * 1000)
        for numbers in _in_steps(int(known)):
            await self._run("retain", keys.of_nodes(numbers), [at])


def _in_steps(nodes: int) -> Iterator[range]:
    """The numbers of so many nodes, in pieces for one script each."""
    for first in range(1, nodes + 1, _NODES_PER_STEP):
        yield range(first, min(first + _NODES_PER_STEP, nodes + 1))
