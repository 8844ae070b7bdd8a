"""What the traces of one search have written so far: tokens and text, on their way to the tree log."""

from __future__ import annotations

from decoder_worker.engine.base import Tokenizer
from decoder_worker.engine.detokenizer import Detokenizer
from decoder_worker.tree_log import TreeLog
from decoder_worker.tree_view import Trace

# Tokens before a piece of text that decide how it begins (a space, the rest of a character).
TEXT_CONTEXT = 8


class Checkpoints:
    """Notes each trace's own tokens once, with their text."""

    def __init__(self, log: TreeLog, tokenizer: Tokenizer) -> None:
        self._log = log
        self._tokenizer = tokenizer
        self._noted: dict[int, int] = {}  # own tokens, by node
        self._detokenizers: dict[int, Detokenizer] = {}

    def restore(self, trace: Trace) -> None:
        """All that the trace has is stored."""
        self._noted[trace.number] = trace.own_tokens

    def save(self, trace: Trace, upto: int | None = None, *, last: bool = False) -> bool:
        """Notes its own tokens up to a position, or all; False: there is nothing new. last: it gets no more,
        so that a character that is not complete never will be."""
        start = self._noted.get(trace.number, 0)
        end = trace.own_tokens if upto is None else upto - trace.branch_position
        if end <= start and not (last and end):
            return False
        detokenizer = self._detokenizers.get(trace.number)
        if detokenizer is None:
            before = trace.sequence()[: trace.branch_position + start][-TEXT_CONTEXT:]
            detokenizer = self._detokenizers[trace.number] = Detokenizer(self._tokenizer, before)
        tokens = trace.tokens[start:end].tolist()
        text = detokenizer.feed(tokens) + (detokenizer.flush() if last else "")
        trace.text_bytes += len(text.encode())
        if tokens or text:
            self._log.checkpoint(trace, tokens, text, trace.confidences[start:end])
        self._noted[trace.number] = end
        return True
