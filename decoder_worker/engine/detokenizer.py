"""Text of a trace piece by piece, as its tokens come."""

from __future__ import annotations

from collections.abc import Sequence

from decoder_worker.engine.base import Tokenizer

_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
# A character has at most four bytes and a token at least one: that many may wait for the rest of it.
_MOST_WAITING = 3
# Tokens that decide how the next ones begin; a whole thought would do as well, and take longer to decode.
_CONTEXT = 8


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
        self._known = ""  # that text
        self._held = list(before)  # its text is not
        self._release(self._complete()[0])

    def feed(self, tokens: Sequence[int]) -> str:
        """Text of these tokens. The bytes of a character that is not complete yet wait for the next call."""
        self._held.extend(tokens)
        complete, text = self._complete()
        new = text[len(self._known) :]
        if new:
            self._release(complete)
        return new

    def flush(self) -> str:
        """What still waits: at the end of a trace that was cut inside a character."""
        if not self._held:
            return ""
        text = self._decode(len(self._held))
        new = text[len(self._known) :]
        self._context, self._known, self._held = self._context + self._held, text, []
        return new

    def _complete(self) -> tuple[int, str]:
        """How many of the held tokens end with a whole character, and the text of the context and these."""
        least = max(0, len(self._held) - _MOST_WAITING)
        for end in range(len(self._held), least, -1):
            text = self._decode(end)
            if not text.endswith(_INCOMPLETE):
                return end, text
        return least, self._decode(least)

    def _decode(self, end: int) -> str:
        """Text of the context and the first `end` held tokens."""
        if not end:
            return self._known
        return self._tokenizer.decode([*self._context, *self._held[:end]])

    def _release(self, end: int) -> None:
        """Makes the first `end` held tokens the context: a few of them, unless they start inside a character
        or have no text."""
        out, self._held = self._held[:end], self._held[end:]
        self._context = out[-_CONTEXT:]
        self._known = self._tokenizer.decode(self._context)
        if _INCOMPLETE in self._known or not self._known:
            self._context, self._known = out, self._tokenizer.decode(out)
