"""The life of one assigned tree on this worker: checked, searched, finished; or failed, or handed back."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

import grpc

from decoder_worker.admission import prepare
from decoder_worker.resume import resume
from decoder_worker.search import Search
from decoder_worker.tree_log import TreeLog
from decoder_worker.verdict import decide, winning_path
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.status import StatusError
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.errors import StaleEpochError, StoreError
from tree_store.model import Failure, TreeRecord, TreeState

if TYPE_CHECKING:
    from decoder_worker.worker import Worker

# A vote does not wait longer than this for scores once the deadline has passed.
LATE_SCORES_SECONDS = 1.0

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
        self._cancelled = False

    @property
    def started(self) -> bool:
        """Whether its first traces have been queued."""
        return self.search is not None and self.search.started

    def cancel(self) -> None:
        """Ends the tree as cancelled."""
        self._cancelled = True
        if self.search is not None:
            self.search.stop()

    def lose(self) -> None:
        """The tree has another owner: lets go of it."""
        if self.search is not None:
            self.search.abandon()

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
        except Exception as error:
            log.exception("tree_broke", tree_id=self.tree_id)
            await self._fail(StatusError(grpc.StatusCode.INTERNAL, "SEARCH_FAILED", str(error)))
        finally:
            self.lose()

    async def _search(self) -> None:
        record = await self._worker.store.tree(self.tree_id)
        search = self.search = self._prepare(record)
        writer = asyncio.create_task(self._log.run(), name=f"tree log {self.tree_id}")
        # a writer that fails ends the search: nothing of it would be kept
        writer.add_done_callback(lambda _: search.abandon())
        try:
            if record.epoch == 1 or not await resume(search, self._log, self._worker.store, record):
                search.start()
            if self._cancelled:
                search.stop()
            await self._until_ended(search)
        finally:
            self._log.close()
            await writer
        if search.error is not None:
            raise search.error
        await self._finish(search)

    def _prepare(self, record: TreeRecord) -> Search:
        worker = self._worker
        spec, policy = prepare(
            self.tree_id,
            self.epoch,
            self._message,
            deadline=record.deadline,
            engine=worker.engine.info,
            tokenizer=worker.engine.tokenizer,
            profile=worker.config.profile,
            max_capacity=worker.config.max_capacity,
            has_scorer=worker.scoring is not None,
        )
        self._log.fields(
            model=worker.engine.info.model,
            profile=self._message.profile or worker.config.profile,
            parameters=json.dumps(asdict(policy.parameters)),
        )
        return Search(spec, policy, worker, self._log, worker.engine.tokenizer)

    async def _until_ended(self, search: Search) -> None:
        """Waits for the end, or ends it at the deadline; then for the scores that the vote needs."""
        try:
            async with asyncio.timeout(search.spec.deadline - time.time()):
                await search.ended.wait()
                if not self._cancelled:
                    await search.scores_settled()
        except TimeoutError:
            search.stop("deadline")
            try:
                async with asyncio.timeout(LATE_SCORES_SECONDS):
                    await search.scores_settled()
            except TimeoutError:
                log.warning("scores_late", tree_id=self.tree_id)

    async def _finish(self, search: Search) -> None:
        outcome = await decide(search, self._worker.equivalence, self._worker.engine.tokenizer)
        for trace in winning_path(search, outcome):
            self._log.winner(trace)
        self._log.fields(generated=search.view.generated, recomputed=search.recomputed)
        state = TreeState.CANCELLED if self._cancelled else TreeState.SUCCEEDED
        await self._log.finish(state, outcome, None)
        log.info(
            "tree_ended",
            tree_id=self.tree_id,
            state=state,
            nodes=len(search.view),
            generated=search.view.generated,
            rounds=search.rounds,
            ended_by=search.ended_by or "policy",
        )

    async def _fail(self, error: StatusError) -> None:
        if self.search is not None:
            self.search.stop()
        violations = tuple((v.field, v.description) for v in error.violations)
        failure = Failure(error.code.value[0], error.reason, error.message, violations)
        try:
            await self._log.finish(TreeState.FAILED, None, failure)
        except StoreError as cause:  # the lease runs out and the next owner decides
            log.error("failure_not_stored", tree_id=self.tree_id, error=cause)
        log.warning("tree_failed", tree_id=self.tree_id, reason=error.reason)

    async def _hand_back(self) -> None:
        self.lose()
        try:
            await self._log.hand_back()
            log.info("tree_handed_back", tree_id=self.tree_id, epoch=self.epoch)
        except StoreError as error:  # then its lease runs out
            log.warning("tree_not_handed_back", tree_id=self.tree_id, error=error)
