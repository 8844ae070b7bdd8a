"""The scores of one search: what goes to its scorer, and what of it has not come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from decoder_worker.engine.base import HiddenRow, Tokenizer
from decoder_worker.scoring.texts import ThoughtTexts
from decoder_worker.scoring.wire import BoundaryRow
from decoder_worker.spec import SearchSpec
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import Trace, TreeView
from thoughtbeam.runtime.scorers import CONFIDENCE
from tree_store.model import Thought


class SearchScores:
    """wanted: whether thoughts are scored. waited: seconds in which the engine had nothing of the tree and a
    score was awaited. by_confidence: whether tokens' confidences are what scores."""

    def __init__(self, spec: SearchSpec, log: TreeLog, tokenizer: Tokenizer, *, wanted: bool) -> None:
        self.wanted = wanted
        self.waited = 0.0
        self.by_confidence = wanted and spec.scorer is not None and spec.scorer.kind == CONFIDENCE
        self._spec = spec
        self._log = log
        reads_text = spec.scorer is not None and spec.scorer.reads_text
        self._texts = ThoughtTexts(spec.messages, tokenizer) if reads_text else None
        self._mismatch = ""
        self._under_way: dict[int, int] = {}  # thoughts, by node
        self._settled = asyncio.Event()
        self._settled.set()
        self._waiting_since: float | None = None

    # ---- which scorer

    def note_scorer(self) -> None:
        """Notes with the tree who scores it."""
        if self.wanted and self._spec.scorer is not None:
            self._log.fields(scorer=self._spec.scorer.kind, scorer_id=self._spec.scorer.scorer_id)

    def note_mismatch(self, mismatch: str) -> None:
        """Notes in what the tree differs from what its scorer was trained for, if it does."""
        if mismatch and mismatch != self._mismatch:
            self._mismatch = mismatch
            self._log.fields(scorer_mismatch=mismatch)

    # ---- thoughts under way

    def send(self, trace: Trace, row: HiddenRow) -> BoundaryRow:
        """The trace's last thought, as it goes to the scorer; from now on it is under way."""
        number, index = trace.number, len(trace.thoughts) - 1
        self._under_way[number] = self._under_way.get(number, 0) + 1
        self._settled.clear()
        return BoundaryRow(
            tree_id=self._spec.scoring_id,
            node=number,
            thought=index,
            first_thought=trace.inherited_thoughts + index,
            row=row,
            trace=trace,
            texts=self._texts,
            confidence=trace.thoughts[-1].confidence,
        )

    def back(self, node: int) -> None:
        """One has come back, with or without a score."""
        self._under_way[node] -= 1
        if not self._under_way[node]:
            del self._under_way[node]

    def __contains__(self, node: int) -> bool:
        return node in self._under_way

    def __iter__(self) -> Iterator[int]:
        """The nodes that have thoughts under way."""
        return iter(self._under_way)

    def give_up(self, view: TreeView) -> Iterator[tuple[Trace, Thought]]:
        """The thoughts that are under way, which are awaited no longer."""
        for node, count in self._under_way.items():
            for thought in view[node].thoughts[-count:]:
                yield view[node], thought
        self._under_way = {}

    def drop(self, node: int) -> None:
        """The trace has ended and nothing of it is under way."""
        if self._texts is not None:
            self._texts.drop(node)

    # ---- waiting for them

    @property
    def settled(self) -> bool:
        """Whether none is awaited any more."""
        return self._settled.is_set()

    async def until_settled(self) -> None:
        await self._settled.wait()

    def settle(self, needed: Callable[[int], bool]) -> None:
        """Settled, once no thought of a node that is `needed` is under way."""
        if not any(map(needed, self._under_way)):
            self._settled.set()

    def note_wait(self, *, running: bool) -> None:
        """Counts what is waited. running: whether the engine has something of the tree, or is about to."""
        if running and self._waiting_since is None:
            return
        now = time.monotonic()
        if self._waiting_since is not None:
            self.waited += now - self._waiting_since
        self._waiting_since = now if self._under_way and not running else None
