"""One prm worker as the scoring client sees it: the rows that wait for it, and one call at a time."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import grpc

from decoder_worker.scoring.base import Deliver
from decoder_worker.scoring.calls import CALL_BYTES, Origin, score_rows, score_texts
from decoder_worker.scoring.info import NOT_ANSWERED, ScorerInfo, ScorerUnreachableError, ask
from decoder_worker.scoring.queued import Queued
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.rpc import open_channel
from thoughtbeam.runtime.status import StatusError, from_rpc_error
from thoughtbeam.v1 import scoring_pb2 as pb
from thoughtbeam.v1.scoring_pb2_grpc import ScorerServiceStub

log = EventLogger("decoder_worker.scoring.prm_link")

MAX_ROWS_PER_CALL = 256  # less where the server takes less
CALL_TIMEOUT = 10.0  # seconds; a server that hangs is asked again
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between attempts


@dataclass(slots=True)
class ScoringStats:
    """Counters since the start. calls: that were answered, with the `rows` in them; seconds: spent in them;
    retries: calls that were not answered; lost: rows given up as SCORER_LOST; moved: rows that went to
    another prm worker; histories: traces whose history was sent."""

    calls: int = 0
    rows: int = 0
    seconds: float = 0.0
    retries: int = 0
    lost: int = 0
    moved: int = 0
    histories: int = 0


class PrmLink:
    """A way to one prm worker. info: what it serves, once it has said so. away: it does not answer, or serves
    what is not wanted.

    deadline: seconds that a row waits. accepts: says of what it serves whether that is wanted. on_change:
    called when it may have gone away or come back.
    """

    def __init__(
        self,
        target: str,
        origin: Origin,
        deadline: float,
        stats: ScoringStats,
        accepts: Callable[[PrmLink, ScorerInfo], bool],
        on_change: Callable[[], None],
    ) -> None:
        self.target = target
        self.info: ScorerInfo | None = None
        self._origin = origin
        self._deadline = deadline
        self._stats = stats
        self._accepts = accepts
        self._on_change = on_change
        self._channel = open_channel(target)
        self._stub = ScorerServiceStub(self._channel)
        self._queue: deque[Queued] = deque()  # oldest first
        self._in_hand: Sequence[Queued] = ()  # taken from the queue: sent, or being delivered
        self._drops: dict[str, set[int] | None] = {}  # nodes of each tree, None: all of it
        self._arrived = asyncio.Event()
        self._most = MAX_ROWS_PER_CALL  # less while it cannot score as many within the time of a call
        self._pause = 0.0  # between attempts; 0: the last call was answered
        self._next_attempt = 0.0  # loop time

    async def close(self) -> None:
        await self._channel.close()

    @property
    def away(self) -> bool:
        return self._pause > 0

    @property
    def _known(self) -> bool:
        """Whether it has said what it serves, on this connection: on another it may be another one."""
        connected = self._channel.get_state() is grpc.ChannelConnectivity.READY
        return self.info is not None and connected

    async def ask(self, timeout: float) -> ScorerInfo:
        """What it serves, waiting for it. Raises what `ask` in info.py raises."""
        self.info = await ask(self._stub, self.target, timeout)
        self._answered()
        self._arrived.set()
        return self.info

    # ---- what it is to do

    def put(self, entries: Iterable[Queued]) -> None:
        """More rows; of another prm worker too, so that the oldest come first."""
        self._queue = deque(sorted([*self._queue, *entries], key=lambda entry: entry.since))
        self._arrived.set()

    def append(self, entries: Collection[Queued]) -> None:
        """Rows that have just come."""
        self._queue.extend(entries)
        if entries:
            self._arrived.set()

    def take_all(self) -> list[Queued]:
        """The rows that wait here, for another prm worker; not what is in a call."""
        taken, self._queue = list(self._queue), deque()
        return taken

    def drop(self, tree_id: str, node: int | None) -> None:
        """The prm worker need not know the trace any more; node None: all of the tree."""
        if self.info is None or not self.info.history_size or self.away:
            return  # it knows nothing, or has to forget it by itself
        nodes = self._drops.setdefault(tree_id, set())
        if node is None:
            self._drops[tree_id] = None
        elif nodes is not None:
            nodes.add(node)
        self._arrived.set()

    def forget(self, tree_id: str) -> None:
        """Nothing of the tree is delivered any more."""
        self._queue = deque(entry for entry in self._queue if entry.row.tree_id != tree_id)
        for entry in self._in_hand:
            entry.forgotten = entry.forgotten or entry.row.tree_id == tree_id

    async def run(self) -> None:
        """Scores what comes until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            if (not self._queue and not self._drops) or (self.away and loop.time() < self._next_attempt):
                await self._rest()
            self._arrived.clear()
            self._deliver(self._take_old())
            if self.away or not self._known:
                if loop.time() >= self._next_attempt:
                    await self._greet()
                continue
            await self._send_drops()
            if self._queue and not self.away:
                await self._score(self._take())
            self._in_hand = ()

    async def _rest(self) -> None:
        """Until something arrives, a row is lost, or an absent prm worker is to be asked again."""
        until = self._queue[0].since + self._deadline if self._queue else math.inf
        if self.away:
            until = min(until, self._next_attempt)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if until == math.inf else until):
                await self._arrived.wait()

    # ---- the queue

    def _take_old(self) -> Sequence[Queued]:
        """The rows that have waited too long."""
        before = asyncio.get_running_loop().time() - self._deadline
        old: list[Queued] = []
        lost = 0
        while self._queue and self._queue[0].since <= before:
            entry = self._queue.popleft()
            if not entry.settled:
                entry.error = "SCORER_LOST"
                lost += 1
            old.append(entry)
        if lost:
            self._stats.lost += lost
            log.warning("rows_lost", target=self.target, rows=lost)
        return old

    def _take(self) -> Sequence[Queued]:
        """The oldest rows that fit into one call."""
        assert self.info is not None
        most = min(self._most, self.info.max_rows)
        taken: list[Queued] = []
        wanted: tuple[str, int] | None = None
        size = 0
        while self._queue and len(taken) < most:
            entry = self._queue[0]
            if not entry.settled and not self.info.reads_text:
                wanted = wanted or entry.format
                size += wanted[1]
                if entry.format != wanted or size > CALL_BYTES:
                    break
            taken.append(self._queue.popleft())
        return taken

    def _deliver(self, entries: Sequence[Queued]) -> None:
        self._in_hand = entries
        by_receiver: dict[Deliver, list[Queued]] = {}
        for entry in entries:
            by_receiver.setdefault(entry.deliver, []).append(entry)
        for deliver, own in by_receiver.items():
            # the receiver before may have forgotten this one's tree
            scored = [entry.scored for entry in own if not entry.forgotten]
            if scored:
                deliver(scored)

    # ---- calls

    async def _score(self, batch: Sequence[Queued]) -> None:
        self._in_hand = batch
        await self._settle([entry for entry in batch if not entry.settled])
        # the rows of a trace stay together: none is delivered before one that came earlier
        unsettled = {entry.trace for entry in batch if not entry.settled}
        again = [entry for entry in batch if entry.trace in unsettled and not entry.forgotten]
        self._queue.extendleft(reversed(again))
        self._deliver([entry for entry in batch if entry.trace not in unsettled])
        if self.away:
            self._on_change()

    async def _settle(self, batch: Sequence[Queued]) -> None:
        """Asks for scores. What is not settled then is to be asked for again."""
        assert self.info is not None
        if self.info.reads_text and any(entry.row.texts is None for entry in batch):
            for entry in batch:  # their search began when another kind of scorer was here
                entry.error = "" if entry.row.texts is not None else "SCORER_CHANGED"
            batch = [entry for entry in batch if not entry.settled]
        if not batch:
            return
        calls = _Calls(self._stats)
        timeout = self._timeout(batch[0])
        try:
            if self.info.reads_text:
                done = await score_texts(self._stub, batch, timeout, calls.begin)
            else:
                done = await score_rows(self._stub, self.info, self._origin, batch, timeout, calls.begin)
        except grpc.RpcError as error:
            self._settle_failure(calls.sent, from_rpc_error(error))
            return
        calls.end()
        self._most = min(MAX_ROWS_PER_CALL, self._most + 1)
        if done:
            self._answered()
        else:
            log.warning("history_not_kept", target=self.target)
            self._failed()

    def _settle_failure(self, sent: Sequence[Queued], status: StatusError) -> None:
        """What a failed call means for its rows, given in the order of the request."""
        if status.code in NOT_ANSWERED:
            if not self.away:
                log.warning("scorer_unreachable", target=self.target, code=status.code.name)
            if status.code is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._most = max(1, len(sent) // 2)
            self._failed()
            return
        self._answered()
        row = status.metadata.get("row", "")
        if status.reason == "NONFINITE_ROW" and row.isdecimal() and int(row) < len(sent):
            # a finite row that overflows in the scorer: the others of its call are none the worse
            sent[int(row)].error = status.reason
            return
        reason = status.code.name if status.reason == "UNKNOWN" else status.reason
        log.error("rows_refused", target=self.target, rows=len(sent), reason=reason, message=status.message)
        for entry in sent:
            entry.error = reason

    async def _greet(self) -> None:
        """Asks a prm worker that is new or was away what it serves."""
        try:
            timeout = self._timeout(self._queue[0]) if self._queue else CALL_TIMEOUT
            info = await ask(self._stub, self.target, timeout, wait_for_ready=False)
        except (ScorerUnreachableError, StatusError) as error:
            if not self.away:
                log.warning("scorer_unreachable", target=self.target, error=str(error))
            self._failed()
        else:
            if self._accepts(self, info):
                self.info = info
                self._answered()
            else:
                self._failed()
        self._on_change()

    def _timeout(self, oldest: Queued) -> float:
        """Seconds for a call."""
        left = oldest.since + self._deadline - asyncio.get_running_loop().time()
        return min(CALL_TIMEOUT, max(0.01, left))

    async def _send_drops(self) -> None:
        drops, self._drops = self._drops, {}
        for tree_id, nodes in drops.items():
            request = pb.DropTracesRequest(tree_id=tree_id, nodes=sorted(nodes or ()))
            try:
                await self._stub.DropTraces(request, timeout=CALL_TIMEOUT)
            except grpc.RpcError as error:
                # what is not dropped is forgotten in time, when room is needed
                status = from_rpc_error(error)
                log.warning("traces_not_dropped", target=self.target, code=status.code.name)
                if status.code in NOT_ANSWERED:
                    self._failed()
                    self._on_change()
                    return

    def _failed(self) -> None:
        # so that a row which comes meanwhile is tried before it is lost
        self._pause = min(LONGEST_PAUSE, self._deadline / 4, 2 * self._pause or FIRST_PAUSE)
        self._next_attempt = asyncio.get_running_loop().time() + self._pause
        self._drops = {}
        self._stats.retries += 1

    def _answered(self) -> None:
        if self.away:
            log.info("scorer_back", target=self.target)
        self._pause = 0.0


class _Calls:
    """Counts the calls of one batch. sent: the rows of the last one."""

    def __init__(self, stats: ScoringStats) -> None:
        self.sent: Sequence[Queued] = ()
        self._stats = stats
        self._began = 0.0
        self._seen: set[tuple[str, int]] = set()

    def begin(self, sent: Sequence[Queued]) -> None:
        self.end()
        self._began = asyncio.get_running_loop().time()
        self._stats.histories += len({entry.trace for entry in sent} & self._seen)
        self.sent = sent

    def end(self) -> None:
        """The last one was answered."""
        if self.sent:
            self._seen |= {entry.trace for entry in self.sent}
            self._stats.calls += 1
            self._stats.rows += sum(entry.settled for entry in self.sent)
            self._stats.seconds += asyncio.get_running_loop().time() - self._began
        self.sent = ()
