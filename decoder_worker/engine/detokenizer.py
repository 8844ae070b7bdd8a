"""Text of a trace piece by piece, as its tokens come."""

from __future__ import annotations

from collections.abc import Sequence

from decoder_worker.engine.base import Tokenizer

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
# A character has at most four bytes and a token at least one: that many may wait for the rest of it.
_MOST_WAITING = 3


class Detokenizer:
    """Gives the text of each chunk of tokens so that the pieces add up to the text of all of them.

    Decoding chunk by chunk would not: a character may be spread over several tokens, and some tokenizers drop
    the space at the start of whatever they decode. So each chunk is decoded behind the one before it, and the
    tokens at its end that may be the start of a character wait. Which wait depends on the tokens alone, not
    on how they were cut into chunks.

    before: tokens that precede the first chunk; those of them that wait belong to it. Without them the pieces
    add up to `decode(all chunks)`, with them to what follows the complete characters of `decode(before)`.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []  # its text is out already
        self._held = list(before)  # its text is not
        complete = self._complete()
        self._context, self._held = self._held[:complete], self._held[complete:]

    def feed(self, tokens: Sequence[int]) -> str:
        """Text of these tokens. The bytes of a character that is not complete yet wait for the next call."""
        self._held.extend(tokens)
        complete = self._complete()
        text = self._text(complete)
        if text:
            self._context, self._held = self._held[:complete], self._held[complete:]
        return text

    def flush(self) -> str:
        """What still waits: at the end of a trace that was cut inside a character."""
        text = self._text(len(self._held))
        self._context, self._held = self._context + self._held, []
        return text

    def _complete(self) -> int:
        """How many of the held tokens end with a whole character."""
        least = max(0, len(self._held) - _MOST_WAITING)
        for end in range(len(self._held), least, -1):
            if not self._tokenizer.decode([*self._context, *self._held[:end]]).endswith(_INCOMPLETE):
                return end
        return least

    def _text(self, end: int) -> str:
        """What the first `end` held tokens add."""
        if not end:
            return ""
        known = self._tokenizer.decode(self._context)
        return self._tokenizer.decode([*self._context, *self._held[:end]])[len(known) :]
