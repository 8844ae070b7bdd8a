"""The trainer's tokenizer is the bundled model's."""

from __future__ import annotations

import random

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from bench.tiny_reasoner.demonstrator import demonstrate
from bench.tiny_reasoner.ledger import random_ledger
from bench.tiny_reasoner.tokenizer import VOCABULARY, decode, encode, prompt
from thoughtbeam.models import BUNDLED_MODEL


@pytest.fixture(scope="module")
def bundled() -> PreTrainedTokenizerBase:
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(BUNDLED_MODEL)
    return tokenizer


def texts() -> list[str]:
    rng = random.Random(0)
    ledgers = [random_ledger(rng, steps) for steps in range(1, 27)]
    awkward = ["", "\n\n\n", "a\n\n\nb, so , so", "user: user) ", "".join(map(chr, range(32, 127)))]
    return [prompt(ledger.question()) + demonstrate(ledger, rng).text() for ledger in ledgers] + awkward


def test_the_vocabulary_is_the_bundled_one(bundled: PreTrainedTokenizerBase) -> None:
    assert bundled.get_vocab() == VOCABULARY


def test_texts_are_encoded_alike(bundled: PreTrainedTokenizerBase) -> None:
    for text in texts():
        assert encode(text) == bundled.encode(text, add_special_tokens=False)


def test_decoding_undoes_encoding(bundled: PreTrainedTokenizerBase) -> None:
    for text in texts():
        assert decode(encode(text)) == text == bundled.decode(encode(text))


def test_a_prompt_is_what_the_chat_template_makes(bundled: PreTrainedTokenizerBase) -> None:
    question = random_ledger(random.Random(2), 6).question()
    rendered = bundled.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, tokenize=False
    )
    assert rendered == prompt(question)


def test_other_characters_are_refused() -> None:
    with pytest.raises(KeyError):
        encode("1 + 1 = ２")
