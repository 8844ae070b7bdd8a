"""Chunks of a trace decode to the text of the whole, whatever the tokenizer does at their edges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from decoder_worker.engine.detokenizer import Detokenizer
from decoder_worker.engine.tokenizer import HuggingFaceTokenizer


def byte_level() -> HuggingFaceTokenizer:
    """One token per byte: characters outside ASCII are spread over several tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=core))


def sentence_piece() -> HuggingFaceTokenizer:
    """Words carry their space in front; decoding drops the first one."""
    vocabulary = {word: index for index, word in enumerate(["<unk>", "▁", "▁so", "▁we", "add", "▁é", "\n"])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.decoder = decoders.Metaspace()
    return HuggingFaceTokenizer(PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>"))


TOKENIZERS = {"byte level": byte_level(), "sentence piece": sentence_piece()}


def cut(tokens: Sequence[int], cuts: list[int]) -> list[Sequence[int]]:
    edges = [0, *sorted(min(c, len(tokens)) for c in cuts), len(tokens)]
    return [tokens[a:b] for a, b in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 60), max_size=8)


@given(text=st.text(alphabet="a é€😀\n", max_size=20), cuts=CUTS)
def test_bytes_of_a_character_wait_for_each_other(text: str, cuts: list[int]) -> None:
    tokenizer = TOKENIZERS["byte level"]
    tokens = tokenizer._tokenizer(text)["input_ids"]
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.feed(chunk) for chunk in cut(tokens, cuts)]
    assert "".join(pieces) == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data(), cuts=CUTS)
def test_pieces_add_up_to_the_whole(name: str, data: st.DataObject, cuts: list[int]) -> None:
    tokenizer = TOKENIZERS[name]
    ids = st.integers(0, len(tokenizer._tokenizer) - 1)
    tokens = data.draw(st.lists(ids, max_size=40))
    before = data.draw(st.lists(ids, max_size=6))

    alone = Detokenizer(tokenizer)
    pieces = [alone.feed(chunk) for chunk in cut(tokens, cuts)]
    assert "".join(pieces) + alone.flush() == tokenizer.decode(tokens)

    first = Detokenizer(tokenizer)
    known = first.feed(before)
    behind = Detokenizer(tokenizer, before)
    pieces = [behind.feed(chunk) for chunk in cut(tokens, cuts)]
    assert known + "".join(pieces) + behind.flush() == tokenizer.decode([*before, *tokens])


@pytest.mark.parametrize("name", TOKENIZERS)
@given(data=st.data(), cuts=CUTS)
def test_what_waits_depends_on_the_tokens_alone(name: str, data: st.DataObject, cuts: list[int]) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = data.draw(st.lists(st.integers(0, len(tokenizer._tokenizer) - 1), max_size=40))
    whole, cut_up = Detokenizer(tokenizer), Detokenizer(tokenizer)
    assert "".join(cut_up.feed(chunk) for chunk in cut(tokens, cuts)) == whole.feed(tokens)


def test_texts_of_a_vocabulary_are_what_tokens_add_and_reach_beyond_the_tokenizer() -> None:
    texts = TOKENIZERS["sentence piece"].token_texts(9)
    assert texts == ["<unk>", " ", " so", " we", "add", " é", "\n", "", ""]
