"""Boundary rules: at which tokens of a trace a thought ends.

`blank_line`: the token with which the decoded text first contains a blank line, that is the second newline
of a run of newlines. A run of any length is one boundary, however it is cut into tokens.
`blank_line_before_think_end`: the same, but only while the thinking is open (public STEP scorers).

Few tokens have a newline in their text, so the rule of a whole vocabulary is a small table. It travels to
the engine's processes; nothing here imports more than the standard library.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

BLANK_LINE = "blank_line"
BLANK_LINE_BEFORE_THINK_END = "blank_line_before_think_end"
RULES = (BLANK_LINE, BLANK_LINE_BEFORE_THINK_END)

# How the text so far ends: the length of its last run of newlines, 2 standing for all that follow.
TEXT, NEWLINE, BLANK = range(3)
TAIL = 0b011  # mask of the tail in a code
BOUNDARY = 0b100  # set in a code when the token is a boundary

# token -> its code after each of the three tails; a token that is missing has code TEXT after all of them
Table = Mapping[int, tuple[int, int, int]]


def make_table(texts: Sequence[str], transparent: Collection[int] = ()) -> dict[int, tuple[int, int, int]]:
    """The rule's table for a vocabulary.

    texts: text of every token, by id. transparent: tokens that decoding leaves out (special tokens): like
    those without a text they do not end a run of newlines.
    """
    table = {
        token: (_code(text, TEXT), _code(text, NEWLINE), _code(text, BLANK))
        for token, text in enumerate(texts)
        if "\n" in text or not text
    }
    table.update((token, (TEXT, NEWLINE, BLANK)) for token in transparent)
    return table


def _code(text: str, tail: int) -> int:
    run, boundary = tail, 0
    for character in text:
        if character != "\n":
            run = 0
            continue
        run += 1
        if run == 2:
            boundary = BOUNDARY
    return boundary | min(run, BLANK)


def code_after(table: Table, tail: int, token: int) -> int:
    """Code of a token that follows a text with this tail."""
    codes = table.get(token)
    return TEXT if codes is None else codes[tail]


def last_code(table: Table, tokens: Sequence[int]) -> int:
    """Code of the last token of a sequence; TEXT for an empty one.

    Looks back only to the last token before it that fixes the tail, whatever came before.
    """
    start = len(tokens) - 1
    while start > 0 and not _fixes_tail(table, tokens[start - 1]):
        start -= 1
    code = code_after(table, TEXT, tokens[start - 1]) if start > 0 else TEXT
    for token in tokens[max(start, 0) :]:
        code = code_after(table, code & TAIL, token)
    return code


def _fixes_tail(table: Table, token: int) -> bool:
    codes = table.get(token)
    return codes is None or len({code & TAIL for code in codes}) == 1


class Vocabulary:
    """The boundary rule `name` for one vocabulary. texts, transparent: as in `make_table`.

    Raises ValueError for a rule that does not exist.
    """

    def __init__(self, name: str, texts: Sequence[str], transparent: Collection[int] = ()) -> None:
        if name not in RULES:
            raise ValueError(f"boundary rule {name!r} does not exist; there are: {', '.join(RULES)}")
        self.rule = name
        self.table = make_table(texts, transparent)
        self._texts = texts
        self._tag_ends = (
            frozenset(token for token, text in enumerate(texts) if ">" in text)
            if name == BLANK_LINE_BEFORE_THINK_END
            else None
        )

    def span(self, tokens: Sequence[int]) -> ThoughtSpan:
        """Where thoughts count in a trace that goes on after these tokens."""
        return ThoughtSpan(self._texts, self._tag_ends, tokens)


class ThoughtSpan:
    """Follows one trace: `open` tells whether a boundary at its last token would count.

    With `blank_line` it always does. With `blank_line_before_think_end` it does unless the last tag was
    `</think>`: a prompt may carry the closed thinking of earlier turns. Tags are found in the text, since a
    tokenizer may cut them anywhere and join their end with what follows.
    """

    _OPEN, _CLOSE = "<think>", "</think>"
    _REACH = len(_CLOSE) - 1  # characters of a tag that may lie in earlier tokens

    def __init__(self, texts: Sequence[str], tag_ends: frozenset[int] | None, tokens: Sequence[int]) -> None:
        self.open = True
        self._texts = texts
        self._tag_ends = tag_ends
        self._tail = ""
        if tag_ends is None:
            return
        # The last tag decides, so look for it from the end.
        for index in range(len(tokens) - 1, -1, -1):
            if tokens[index] in tag_ends and self._look(self._text_before(tokens, index), tokens[index]):
                break
        self._tail = self._text_before(tokens, len(tokens))

    def feed(self, tokens: Iterable[int]) -> None:
        """Goes on by new tokens."""
        if self._tag_ends is None:
            return
        for token in tokens:
            if token in self._tag_ends:
                self._look(self._tail, token)
            self._tail = (self._tail + self._texts[token])[-self._REACH :]

    def _look(self, before: str, token: int) -> bool:
        text = before + self._texts[token]
        opened, closed = text.rfind(self._OPEN), text.rfind(self._CLOSE)
        if opened == closed:  # neither is there
            return False
        self.open = opened > closed
        return True

    def _text_before(self, tokens: Sequence[int], end: int) -> str:
        text = ""
        while end > 0 and len(text) < self._REACH:
            end -= 1
            text = self._texts[tokens[end]] + text
        return text[-self._REACH :]
