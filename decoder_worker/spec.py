"""One question as a worker runs it, checked; what a search asks of its worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from decoder_worker.embedding.queue import ThoughtText
from decoder_worker.engine.base import SamplingSpec
from decoder_worker.scoring.info import ScorerInfo
from decoder_worker.scoring.wire import BoundaryRow, scoring_id
from decoder_worker.tree_view import Trace

if TYPE_CHECKING:
    from decoder_worker.search import Search


@dataclass(frozen=True, slots=True)
class SearchSpec:
    """prompt: token ids. trace_limit: most generated tokens of one trace. token_budget: most generated tokens
    of the tree, 0 for no limit. deadline: seconds since the epoch. answer_mode: see answers/extraction.py.
    messages: (role, content) of the conversation. scorer: of its thoughts; None where the policy needs none.
    epoch: under which the worker owns the tree.
    """

    tree_id: str
    prompt: tuple[int, ...]
    sampling: SamplingSpec
    trace_limit: int
    token_budget: int
    deadline: float
    answer_mode: str
    answer_regex: str
    seed: int
    messages: tuple[tuple[str, str], ...] = ()
    scorer: ScorerInfo | None = None
    epoch: int = 1

    @property
    def scoring_id(self) -> str:
        """What scorers know the tree by."""
        return scoring_id(self.tree_id, self.epoch)


class Host(Protocol):
    """What a search asks of its worker. None of these wait."""

    @property
    def kv_use(self) -> float: ...

    def enqueue(self, search: Search, trace: Trace) -> None:
        """Queues a pending trace for a slot; `Search.granted` is called when it has one."""
        ...

    def withdraw(self, search: Search, trace: Trace, *, running: bool) -> None:
        """Gives up the trace's place; `running`: the engine has it and must let go of it."""
        ...

    def score(self, search: Search, rows: Sequence[BoundaryRow]) -> None:
        """Sends rows to the scorer; `Search.on_scores` is called with what comes back."""
        ...

    def forget(self, search: Search, trace: Trace) -> None:
        """The trace has ended and none of its scores is on its way: the scorer need not know it any more."""
        ...

    def embed(self, search: Search, thoughts: Sequence[ThoughtText]) -> None:
        """Sends thoughts to the embedder; `Search.on_embeddings` is called with what comes back."""
        ...
