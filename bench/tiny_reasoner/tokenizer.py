"""The tiny reasoner's 128 tokens: special tokens, the task's fixed phrases, and single characters.

The same vocabulary is exported for Hugging Face (`export.py`); this one is a regular expression, fast enough
for a trainer that makes its data as it goes. A blank line is one token, so a boundary is one position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

CONTROL = ("<pad>", "<|im_end|>", "<|im_start|>", "<bos>")
THINKING = ("<think>", "</think>")
PHRASES = (
    "\n\n",
    "Start with ",
    " and work modulo 1000. ",
    ". Report the value after ",
    "Wait, let me check ",
    "Wait, go back to ",
    " I was wrong.",
    " OK.",
    ", so ",
    "The answer is ",
    "\\boxed{",
    "assistant",
    "user",
    ") ",
    ": ",
    ", ",
)
CHARACTERS = ("\n", *(chr(code) for code in range(32, 127)))

VOCABULARY = {token: number for number, token in enumerate((*CONTROL, *THINKING, *PHRASES, *CHARACTERS))}
VOCABULARY_SIZE = 128
PAD, END, BOS = VOCABULARY["<pad>"], VOCABULARY["<|im_end|>"], VOCABULARY["<bos>"]
BLANK_LINE = VOCABULARY["\n\n"]

# the longest phrase first, so that ", so " is not read as ", " and "so "
TEXT_PATTERN = "|".join(re.escape(p) for p in sorted(PHRASES, key=len, reverse=True)) + r"|[\s\S]"
_TOKEN = re.compile("|".join(re.escape(t) for t in (*CONTROL, *THINKING)) + "|" + TEXT_PATTERN)
_TEXT = {number: token for token, number in VOCABULARY.items()}

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def encode(text: str) -> list[int]:
    """Token ids of printable ASCII text with newlines. Raises KeyError for any other character."""
    return [VOCABULARY[token] for token in _TOKEN.findall(text)]


def decode(ids: Iterable[int]) -> str:
    """The text of token ids; of padding, its name."""
    return "".join(_TEXT[number] for number in ids)


def prompt(question: str) -> str:
    """What the chat template makes of one user message, up to the start of the thinking."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n<think>\n"
