"""Sends boundary rows to the prm workers and hands back scores, batched across searches.

One call is in flight for each prm worker; whatever gathers meanwhile goes into the next one. Decoding never
waits for a score. A tree stays with one prm worker, for what that keeps of its traces, and goes to the next
one when that does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

from decoder_worker.scoring.base import Deliver, ScoredRow
from decoder_worker.scoring.calls import Origin
from decoder_worker.scoring.info import ScorerInfo, ScorerMismatchError, ScorerUnreachableError
from decoder_worker.scoring.prm_link import PrmLink, ScoringStats
from decoder_worker.scoring.queued import Queued
from decoder_worker.scoring.wire import BoundaryRow, is_finite
from thoughtbeam.runtime.log import EventLogger
from thoughtbeam.runtime.tasks import task_group

__all__ = [
    "BoundaryRow",
    "Deliver",
    "ScoredRow",
    "ScorerInfo",
    "ScorerMismatchError",
    "ScorerUnreachableError",
    "ScoringClient",
    "ScoringStats",
]

log = EventLogger("decoder_worker.scoring.client")


@dataclass(slots=True)
class _Home:
    """Where a tree's rows go. scorer: that was known when the first of them came; scores of another do not go
    with its own."""

    link: PrmLink
    scorer: ScorerInfo | None


class ScoringClient:
    """The decoder worker's side of its prm workers. To be made inside a running event loop.

    targets: `host:port`, several with commas between them. model_fingerprint, boundary_rule, hidden_size: of
    the engine whose rows it sends (the last for `info` to compare). deadline: seconds that a row waits for a
    prm worker that does not answer.
    """

    def __init__(
        self,
        targets: str,
        model_fingerprint: str,
        boundary_rule: str,
        deadline: float,
        *,
        hidden_size: int | None = None,
    ) -> None:
        self.stats = ScoringStats()
        self._origin = Origin(model_fingerprint, boundary_rule)
        self._hidden_size = hidden_size
        self._deadline = deadline
        self._scorer: ScorerInfo | None = None
        self._links = [
            PrmLink(target, self._origin, deadline, self.stats, self._accepts, self._changed)
            for target in targets.split(",")
        ]
        self._homes: dict[str, _Home] = {}

    async def close(self) -> None:
        """Closes the connections. `run` must have ended."""
        for link in self._links:
            await link.close()

    @property
    def scorer(self) -> ScorerInfo:
        """What the prm workers serve; its kind is "" until one has said it."""
        return self._scorer or ScorerInfo(kind="")

    @property
    def serving(self) -> int:
        """How many prm workers answer."""
        return sum(link.info is not None and not link.away for link in self._links)

    def home_of(self, tree_id: str) -> str | None:
        """Address of the prm worker to which the tree's rows go; None: it has none under way."""
        home = self._homes.get(tree_id)
        return None if home is None else home.link.target

    async def info(self, *, timeout: float | None = None) -> ScorerInfo:
        """Asks what the prm workers serve, waiting for them up to `timeout` seconds, by default the deadline.
        One of them has to answer; the others are compared when they come.

        Raises ScorerMismatchError when their scorers differ, or do not fit this engine and are not allowed
        to; ScorerUnreachableError when nobody answers, and StatusError for any other answer.
        """
        asked = await asyncio.gather(
            *(link.ask(timeout or self._deadline) for link in self._links), return_exceptions=True
        )
        known: list[tuple[str, ScorerInfo]] = []
        unreachable: list[ScorerUnreachableError] = []
        for link, answer in zip(self._links, asked, strict=True):
            if isinstance(answer, ScorerInfo):
                known.append((link.target, answer))
            elif isinstance(answer, ScorerUnreachableError):
                unreachable.append(answer)
            else:
                raise answer
        if not known:
            raise unreachable[0]
        for error in unreachable:
            log.warning("scorer_unreachable", error=str(error))
        self._scorer = self._common(known)
        return self._scorer

    def _common(self, known: Sequence[tuple[str, ScorerInfo]]) -> ScorerInfo:
        """The scorer of all that have answered. Raises ScorerMismatchError."""
        first, scorer = known[0]
        for target, other in known:
            if other.identity != scorer.identity:
                raise ScorerMismatchError(
                    f"the prm workers must serve one and the same scorer: {first} has {scorer.name}, "
                    f"{target} has {other.name}"
                )
            different = other.differences(
                self._origin.model_fingerprint, self._origin.boundary_rule, self._hidden_size
            )
            if different and not other.mismatch_allowed:
                raise ScorerMismatchError(
                    f"the scorer at {target} was trained for another engine: {'; '.join(different)}"
                )
        return scorer

    # ---- rows

    def submit(self, rows: Sequence[BoundaryRow], deliver: Deliver) -> None:
        """Queues rows. `deliver` gets each of them back exactly once, unless its tree is forgotten, the rows
        of one trace in the order of their submission. It is called from `run` and must not raise.

        A row that is not finite never leaves. Raises ValueError for a dtype that the wire does not have, or
        data that is not a whole number of values.
        """
        now = asyncio.get_running_loop().time()
        queued: dict[str, list[Queued]] = {}
        for row in rows:
            error = "" if self.scorer.reads_text or is_finite(row.row) else "NONFINITE_ROW"
            queued.setdefault(row.tree_id, []).append(Queued(row, deliver, now, error=error))
        for tree_id, entries in queued.items():
            home = self._home(tree_id)
            if not self._still_scores(home):
                _refuse(entries)
            home.link.append(entries)

    def drop(self, tree_id: str, node: int) -> None:
        """The trace has ended and all its rows have come back: the prm worker need not know it any more."""
        if (home := self._homes.get(tree_id)) is not None:
            home.link.drop(tree_id, node)

    def forget(self, tree_id: str) -> None:
        """Drops the rows of a tree that has ended: nothing of it is delivered afterwards."""
        for link in self._links:
            link.forget(tree_id)
        if (home := self._homes.pop(tree_id, None)) is not None:
            home.link.drop(tree_id, None)

    async def run(self) -> None:
        """Scores what is submitted until it is cancelled."""
        async with task_group() as group:
            for link in self._links:
                group.create_task(link.run(), name=f"scoring at {link.target}")

    # ---- which prm worker

    def _home(self, tree_id: str) -> _Home:
        home = self._homes.get(tree_id)
        if home is None:
            first = self._links[crc32(tree_id.encode()) % len(self._links)]
            home = self._homes[tree_id] = _Home(self._present(first) or first, self._scorer)
        elif home.link.away and (present := self._present(home.link)) is not None:
            home.link = present
            # what it may remember of an earlier stay can hold a thought whose score never came
            present.drop(tree_id, None)
        return home

    def _present(self, link: PrmLink) -> PrmLink | None:
        """This one, or the next one that answers."""
        place = self._links.index(link)
        ring = [*self._links[place:], *self._links[:place]]
        return next((link for link in ring if not link.away), None)

    def _still_scores(self, home: _Home) -> bool:
        if home.scorer is None:
            home.scorer = self._scorer
        return home.scorer is None or self._scorer is None or home.scorer.identity == self._scorer.identity

    def _accepts(self, link: PrmLink, info: ScorerInfo) -> bool:
        """Whether what a prm worker serves is what the others do. Where none that answers serves any more
        what they did, it is the new scorer, of trees that have no scores yet."""
        known = self._scorer
        if known is not None and info.identity != known.identity:
            others = [other for other in self._links if other is not link and not other.away]
            kept = any(other.info is not None and other.info.identity == known.identity for other in others)
            log.error(
                "scorer_differs" if kept else "scorer_changed",
                target=link.target,
                scorer=info.name,
                before=known.name,
            )
            if kept:
                return False
        self._scorer = info
        return True

    def _changed(self) -> None:
        """A prm worker went away or came: rows go where they can be scored."""
        for link in self._links:
            entries = link.take_all()
            by_tree: dict[str, list[Queued]] = {}
            for entry in entries:
                by_tree.setdefault(entry.row.tree_id, []).append(entry)
            for tree_id, own in by_tree.items():
                home = self._home(tree_id)
                if not self._still_scores(home):
                    _refuse(own)
                if home.link is not link:
                    self.stats.moved += len(own)
                home.link.put(own)


def _refuse(entries: Sequence[Queued]) -> None:
    """Their tree has scores of another scorer."""
    for entry in entries:
        if not entry.settled:
            entry.error = "SCORER_CHANGED"
