"""Which thoughts of a search's traces go to the embedder, and when."""

from __future__ import annotations

from typing import Any

from decoder_worker.embedding.queue import ThoughtText
from decoder_worker.engine.base import Tokenizer
from decoder_worker.policies.base import Policy
from decoder_worker.tree_view import Trace


class MergedThoughts:
    """Finds the merged thoughts of each trace that are complete and were not sent yet."""

    def __init__(self, policy: Policy[Any], tokenizer: Tokenizer) -> None:
        self._policy = policy
        self._tokenizer = tokenizer
        self._sent: dict[int, int] = {}  # number of the first that was not sent yet, by node

    def take(self, trace: Trace, *, again: bool) -> list[ThoughtText]:
        """Those to send now. again: those as well of which no vector is known, since the trace has come back,
        or from another worker."""
        first = self._policy.first_embedded
        merged = trace.merged_thoughts(self._policy.shortest_embedded)
        start = first if again else self._sent.get(trace.number, first)
        self._sent[trace.number] = max(start, len(merged))
        missing = [i for i in range(start, len(merged)) if i not in trace.embeddings]
        return [ThoughtText(trace.number, i, self._text(trace, *merged[i])) for i in missing]

    def _text(self, trace: Trace, start: int, end: int) -> str:
        return self._tokenizer.decode(trace.own_between(start, end))
