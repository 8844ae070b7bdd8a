"""Texts as a process reward model reads them: what a person or a model wrote is never a special token."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from prm_worker.process_reward.kept import Kept

SEPARATOR = "<extra_0>"

# One message: role, content.
Message = tuple[str, str]

# A conversation, and room for its tokens.
_Opening = tuple[tuple[Message, ...], int]

_ANSWER = -1
_PLACE = re.compile(r"ThoughtbeamPlace(\d+|-1)End")

# Steps of growing traces, and those that branches share, come again and again. Longer ones are not kept.
_STEPS_KEPT = 32_768
_KEPT_CHARACTERS = 2_048
# Conversations come again with each thought. Characters and tokens of all that are kept.
_OPENINGS_SIZE = 4_000_000


class TokenizerError(Exception):
    """Of a model: why prompts for a process reward model can be made with its tokenizer."""


class ChatError(ValueError):
    """A conversation that the model's chat template refuses."""


class PromptTokenizer:
    """The model's tokenizer.

    separator: id of the token that ends a step. tokenizer: a fast one of transformers. Raises TokenizerError.
    """

    separator: int

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        if not tokenizer.chat_template:
            raise TokenizerError("has no chat template")
        special: Mapping[str, int] = tokenizer.get_added_vocab()
        if SEPARATOR not in special:
            raise TokenizerError(f"has no special token {SEPARATOR}, which must end every step")
        self.separator = special[SEPARATOR]
        self._plain = _without_special_tokens(tokenizer)
        self._longest = max(len(token) for token in self._plain.get_vocab())
        if self.separator in self._encode_plain(SEPARATOR):
            raise TokenizerError(f"has {SEPARATOR} in its vocabulary of ordinary text")
        self._short_step = lru_cache(_STEPS_KEPT)(self._encode_plain)
        self._opening = Kept(self._encode_opening, _size_of_opening, _OPENINGS_SIZE)

    @classmethod
    def load(cls, model: str) -> PromptTokenizer:
        """model: directory or name. Raises TokenizerError."""
        from transformers import PreTrainedTokenizerFast

        try:
            # AutoTokenizer would put Qwen's own way of splitting words in the place of tokenizer.json's
            return cls(PreTrainedTokenizerFast.from_pretrained(model))
        except TokenizerError as error:
            raise TokenizerError(f"the tokenizer of model {model} {error}") from None
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise TokenizerError(f"model {model} has no usable tokenizer: {reason}") from error

    def text(self, text: str, room: int) -> Sequence[int]:
        """Token ids of ordinary text, in which `<extra_0>` is nine characters.

        room: as many tokens at most are of use; of a text that does not fit into it, more than `room` tokens
        come back, though not necessarily all.
        """
        text = self._cut(text, room)
        return self._short_step(text) if len(text) <= _KEPT_CHARACTERS else self._encode_plain(text)

    def opening(self, messages: Sequence[Message], room: int) -> Sequence[int]:
        """Token ids of the conversation, up to where the first step of the answer begins. room: as in `text`.

        Raises ChatError.
        """
        return self._opening((tuple((role, self._cut(text, room)) for role, text in messages), room))

    def _encode_opening(self, opening: _Opening) -> tuple[int, ...]:
        messages, room = opening
        tokens: list[int] = []
        for piece, place in self._rendered([role for role, _ in messages]):
            tokens += self._tokenizer.encode(piece, add_special_tokens=False) if piece else ()
            if place == _ANSWER:
                return tuple(tokens)
            tokens += self.text(messages[place][1], room - len(tokens))
        raise ChatError("leave no place for an answer in the model's chat template")

    def _cut(self, text: str, room: int) -> str:
        """What is of use of a text."""
        # no token is longer, so what is cut away cannot make the rest fit
        return text[: self._longest * (max(room, 0) + 1)]

    def _rendered(self, roles: Sequence[str]) -> list[tuple[str, int]]:
        """The chat template's own text, in pieces: each with the number of the message that follows it."""
        from jinja2 import TemplateError

        places = [*enumerate(roles), (_ANSWER, "assistant")]
        chat = [{"role": role, "content": f"ThoughtbeamPlace{number}End"} for number, role in places]
        try:
            text: str = self._tokenizer.apply_chat_template(chat, tokenize=False)
        except TemplateError as error:
            raise ChatError(f"are refused by the model's chat template: {error}") from None
        pieces = _PLACE.split(text)
        return [(piece, int(place)) for piece, place in zip(pieces[::2], pieces[1::2], strict=False)]

    def _encode_plain(self, text: str) -> tuple[int, ...]:
        return tuple(self._plain.encode(text, add_special_tokens=False).ids)


def _size_of_opening(opening: _Opening, tokens: tuple[int, ...]) -> int:
    return len(tokens) + sum(len(role) + len(text) for role, text in opening[0])


def _without_special_tokens(tokenizer: Any) -> Any:
    """The same tokenizer, for which all text is ordinary."""
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise TokenizerError("is none of the library `tokenizers`")
    settings = json.loads(backend.to_str())
    settings.update(added_tokens=[], truncation=None, padding=None)
    return Tokenizer.from_str(json.dumps(settings))
