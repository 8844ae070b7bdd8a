"""The automaton over any tokenisation of a text agrees with a direct definition on the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder_worker.engine.boundaries import (
    BLANK_LINE,
    BLANK_LINE_BEFORE_THINK_END,
    BOUNDARY,
    TAIL,
    Vocabulary,
    code_after,
    last_code,
    make_table,
)

PIECES = st.lists(
    st.one_of(
        st.sampled_from(["\n", "\n\n", "\n\n\n", " \n", ".\n\n", "\n\nSo", "\na\n", "a\n\nb\n\nc", "é", ""]),
        st.text(alphabet="ab \n", max_size=5),
    ),
    max_size=30,
)
SPECIAL = "<special>"


def boundaries_of_text(pieces: Sequence[str]) -> list[int]:
    """Definition: the tokens that hold the second newline of a run of newlines."""
    shown = ["" if piece == SPECIAL else piece for piece in pieces]
    seconds = {match.start() + 1 for match in re.finditer("\n\n+", "".join(shown))}
    found, at = [], 0
    for index, piece in enumerate(shown):
        if seconds & set(range(at, at + len(piece))):
            found.append(index)
        at += len(piece)
    return found


def vocabulary_of(pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Texts of a vocabulary and the pieces as its tokens."""
    texts = list(dict.fromkeys(pieces))
    return texts, [texts.index(piece) for piece in pieces]


@given(PIECES.flatmap(lambda pieces: st.tuples(st.just(pieces), st.integers(0, len(pieces)))))
def test_automaton_finds_the_boundaries_of_the_text(case: tuple[list[str], int]) -> None:
    pieces, at = case
    pieces = [*pieces[:at], SPECIAL, *pieces[at:]]
    texts, tokens = vocabulary_of(pieces)
    table = make_table(texts, transparent={texts.index(SPECIAL)})

    found, tail = [], 0
    for index, token in enumerate(tokens):
        code = code_after(table, tail, token)
        if code & BOUNDARY:
            found.append(index)
        tail = code & TAIL
        # looking back from any point gives what walking from the start gives
        assert last_code(table, tokens[: index + 1]) == code
    assert found == boundaries_of_text(pieces)


def test_plain_text_needs_no_entry() -> None:
    assert make_table(["a", "\n", "b c", "x\n\n", "<end>", ""], transparent={4}).keys() == {1, 3, 4, 5}


def test_a_run_is_one_boundary_and_looking_back_stays_short() -> None:
    texts = ["a", "\n"]
    table = make_table(texts)
    tokens = [0, 1, 1, 1, 1, 0, 1]
    codes = [last_code(table, tokens[:end]) for end in range(1, 8)]
    assert [bool(code & BOUNDARY) for code in codes] == [False, False, True, False, False, False, False]
    assert last_code(table, []) == 0


THINK = ["<think>", "</think>", "</", "think", ">", ">\n\n", "\n\n", "a", "<"]
TEXTS = [*THINK, "k>", "<thin"]


@given(st.lists(st.integers(0, len(TEXTS) - 1), max_size=40), st.integers(0, 40))
def test_thinking_is_open_unless_the_last_tag_closed_it(tokens: list[int], known: int) -> None:
    span = Vocabulary(BLANK_LINE_BEFORE_THINK_END, TEXTS).span(tokens[:known])
    span.feed(tokens[known:])
    text = "".join(TEXTS[token] for token in tokens)
    assert span.open == (text.rfind("</think>") <= text.rfind("<think>"))


def test_blank_line_counts_everywhere() -> None:
    span = Vocabulary(BLANK_LINE, TEXTS).span([1])
    span.feed([1, 6])
    assert span.open


def test_an_unknown_rule_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'sentence' does not exist; there are: blank_line, "):
        Vocabulary("sentence", [])
