"""The life of one assigned tree on this worker: checked, searched, finished; or failed, or handed back."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import grpc

from decoder_worker.admission import no_embedder, prepare
from decoder_worker.embedding.base import EmbedderError
from decoder_worker.patience import until_available
from decoder_worker.resume import resume
from decoder_worker.search import Search
from decoder_worker.tree_log import TreeLog
from decoder_worker.verdict import decide, winning_path
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.runtime.tasks import task_group
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.errors import StaleEpochError, StoreError, StoreFullError
from tree_store.model import Failure, TreeRecord, TreeState

if TYPE_CHECKING:
    from decoder_worker.worker import Worker

# A vote does not wait longer than this for scores once the deadline has passed or somebody has cancelled the
# tree, nor does a worker that stops.
LATE_SCORES_SECONDS = 1.0
# A worker that stops does not wait longer than this to hand a tree back: then the tree's lease runs out.
HAND_BACK_SECONDS = 5.0

log = EventLogger("decoder_worker.tree_run")


class TreeRun:
    """One tree under one epoch."""

    def __init__(self, tree_id: str, epoch: int, message: pb.Search, worker: Worker) -> None:
        self.tree_id = tree_id
        self.epoch = epoch
        self.search: Search | None = None
        self._message = message
        self._worker = worker
        self._log = TreeLog(worker.store, tree_id, epoch)
        self._begun = False
        self._cancelled = False  # somebody asked for it
        self._stopped = False  # and the search had not ended by itself
        self._lost = False
        self._patience: asyncio.Timeout | None = None  # of the wait for its end

    @property
    def started(self) -> bool:
        """Whether its first traces have been queued."""
        return self._begun

    def cancel(self) -> None:
        """Ends the tree: as cancelled, unless its search has ended by itself and only the vote is missing."""
        self._cancelled = True
        self._obey()

    def lose(self) -> None:
        """The tree has another owner: lets go of it."""
        self._lost = True
        self._obey()

    def _obey(self) -> None:
        """Applies what was asked for; a search that is still being set up hears of it when it has begun."""
        if self.search is None or not self._begun:
            return
        if self._lost:
            self.search.abandon()
        elif self._cancelled and not self.search.ended.is_set():
            self._stopped = True
            self.search.stop()
        elif self._cancelled and self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        """Runs the tree to its end. When cancelled (the worker stops), hands it back to the queue."""
        log.info("tree_taken", tree_id=self.tree_id, epoch=self.epoch, policy=self._message.policy)
        try:
            await self._search()
        except asyncio.CancelledError:
            await self._hand_back()
            raise
        except StaleEpochError:
            log.warning("tree_lost", tree_id=self.tree_id, epoch=self.epoch)
        except StatusError as error:
            await self._fail(error)
        except StoreFullError as error:
            await self._fail(StatusError(grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", str(error)))
        except Exception as error:
            log.exception("tree_broke", tree_id=self.tree_id)
            await self._fail(StatusError(grpc.StatusCode.INTERNAL, "SEARCH_FAILED", str(error)))
        finally:
            self._let_go()

    async def _search(self) -> None:
        store = self._worker.store
        record = await until_available(lambda: store.tree(self.tree_id), tree_id=self.tree_id)
        search = self.search = self._prepare(record)
        if search.policy.needs_embeddings:
            await self._embedder_ready()
        if record.epoch == 1 or not await resume(search, self._log, store, record):
            search.start()
        self._begun = True
        self._obey()
        await self._write_until_ended(search)
        if search.error is not None:
            raise search.error
        if self._lost:
            raise StaleEpochError(f"tree {self.tree_id} is not run under epoch {self.epoch} any more")
        await self._finish(search)

    async def _write_until_ended(self, search: Search) -> None:
        """A log that cannot be written ends the search: nothing of it would be kept."""
        async with task_group() as group:
            group.create_task(self._log.run(), name=f"tree log {self.tree_id}")
            await self._until_ended(search)
            self._log.close()

    def _prepare(self, record: TreeRecord) -> Search:
        worker = self._worker
        spec, policy = prepare(
            self.tree_id,
            self._message,
            deadline=record.deadline,
            engine=worker.engine.info,
            tokenizer=worker.engine.tokenizer,
            profile=record.profile or worker.config.profile,
            max_capacity=worker.config.max_capacity,
            scorer=None if worker.scoring is None else worker.scoring.scorer,
            has_embedder=worker.embedding is not None,
            epoch=self.epoch,
        )
        self._log.fields(
            model=worker.engine.info.model,
            profile=self._message.profile or record.profile or worker.config.profile,
            parameters=json.dumps(asdict(policy.parameters)),
        )
        return Search(spec, policy, worker, self._log, worker.engine.tokenizer)

    async def _embedder_ready(self) -> None:
        """Waits until the embedder is loaded, which the first search that needs it makes it be."""
        assert self._worker.embedding is not None
        try:
            await self._worker.embedding.ready()
        except EmbedderError as error:
            raise no_embedder(self._message.policy, f"cannot load its own: {error}") from error

    async def _until_ended(self, search: Search) -> None:
        """Waits for the end, or ends it at the deadline; then for the scores that the vote needs, not long
        when the deadline has passed or somebody cancels the tree."""
        try:
            async with asyncio.timeout(search.spec.deadline - time.time()) as self._patience:
                await search.ended.wait()
                if not (self._cancelled or search.abandoned):
                    await search.scores_settled()
        except TimeoutError:
            search.stop("deadline")
        finally:
            self._patience = None
        if not (self._stopped or search.abandoned or await self._settled_soon(search)):
            search.degrade("SCORES_LATE")

    async def _settled_soon(self, search: Search) -> bool:
        try:
            async with asyncio.timeout(LATE_SCORES_SECONDS):
                await search.scores_settled()
        except TimeoutError:
            return False
        return True

    async def _finish(self, search: Search) -> None:
        outcome = await decide(search, self._worker.equivalence, self._worker.engine.tokenizer)
        for trace in winning_path(search, outcome):
            self._log.winner(trace)
        self._log.fields(
            generated=search.view.generated,
            recomputed=search.recomputed,
            score_wait=f"{search.score_wait:.3f}",
        )
        state = TreeState.CANCELLED if self._stopped else TreeState.SUCCEEDED
        await self._log.finish(state, outcome)
        log.info(
            "tree_ended",
            tree_id=self.tree_id,
            state=state,
            nodes=len(search.view),
            generated=search.view.generated,
            rounds=search.rounds,
            ended_by=search.ended_by or "policy",
            score_wait=round(search.score_wait, 3),
        )

    async def _fail(self, error: StatusError) -> None:
        self._let_go()
        violations = tuple((v.field, v.description) for v in error.violations)
        failure = Failure(error.code.value[0], error.reason, error.message, violations)
        store = self._worker.store
        try:
            await until_available(lambda: store.fail(self.tree_id, self.epoch, failure), tree_id=self.tree_id)
            log.warning("tree_failed", tree_id=self.tree_id, reason=error.reason)
        except (
            StoreError
        ) as cause:  # somebody else's by now, or its lease runs out and the next owner decides
            log.error("failure_not_stored", tree_id=self.tree_id, reason=error.reason, error=cause)

    def _let_go(self) -> None:
        if self.search is not None:
            self.search.abandon()

    async def _hand_back(self) -> None:
        self._let_go()
        try:
            async with asyncio.timeout(HAND_BACK_SECONDS):
                if self.search is not None:
                    await self._settled_soon(self.search)
                    self.search.checkpoint()
                await self._log.hand_back()
            log.info("tree_handed_back", tree_id=self.tree_id, epoch=self.epoch)
        except (StoreError, TimeoutError) as error:  # then its lease runs out
            log.warning("tree_not_handed_back", tree_id=self.tree_id, error=error)
        except Exception:  # what breaks here must not keep the other trees from going back
            log.exception("tree_not_handed_back", tree_id=self.tree_id)
