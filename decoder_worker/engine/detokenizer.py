"""Text of a trace piece by piece, as its tokens come."""

from __future__ import annotations

from collections.abc import Sequence

from decoder_worker.engine.base import Tokenizer

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """Gives the text of each chunk of tokens so that the pieces add up to the text of all of them.

    Decoding chunk by chunk would not: a character may be spread over several tokens, and some tokenizers drop
    the space at the start of whatever they decode. So each chunk is decoded behind the one before it.

    before: tokens that precede the first chunk. Without them the pieces add up to `decode(all chunks)`, with
    them to what the chunks add to `decode(before)`.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._context = list(before)  # its text is out already
        self._held: list[int] = []  # its text is not

    def feed(self, tokens: Sequence[int]) -> str:
        """Text of these tokens. The bytes of a character that is not complete yet wait for the next call."""
        self._held.extend(tokens)
        text = self._text()
        if not text or text.endswith(_INCOMPLETE):
            return ""
        self._context, self._held = self._held, []
        return text

    def flush(self) -> str:
        """What still waits: at the end of a trace that was cut inside a character."""
        text = self._text()
        self._context, self._held = self._context + self._held, []
        return text

    def _text(self) -> str:
        if not self._held:
            return ""
        known = self._tokenizer.decode(self._context)
        return self._tokenizer.decode([*self._context, *self._held])[len(known) :]
