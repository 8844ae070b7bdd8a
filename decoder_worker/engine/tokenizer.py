"""Text to tokens and back with the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from decoder_worker.engine.base import EngineError


class HuggingFaceTokenizer:
    """The `Tokenizer` of a Hugging Face model, and the texts of its vocabulary for the boundary rules."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, model: str) -> HuggingFaceTokenizer:
        """model: directory or name. Raises EngineError without a usable tokenizer or chat template."""
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(model)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise EngineError(f"model {model} has no usable tokenizer: {reason}", fatal=True) from error
        if not tokenizer.chat_template:
            raise EngineError(f"model {model} has no chat template", fatal=True)
        return cls(tokenizer)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        tokens: list[int] = self._tokenizer.apply_chat_template(
            [dict(message) for message in messages], add_generation_prompt=True, return_dict=False
        )
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    @property
    def transparent(self) -> frozenset[int]:
        """Tokens that decoding leaves out."""
        return frozenset(self._tokenizer.all_special_ids)

    def token_texts(self, size: int) -> list[str]:
        """What every token id below `size` adds to a text, special tokens included.

        "" for ids that the tokenizer lacks: a model's embedding is often larger than its vocabulary.
        """
        known = min(size, len(self._tokenizer))
        # Some tokenizers drop a space at the start, so each token is decoded behind another one.
        anchor = next(token for token in range(known) if self._decode_all([[token]])[0].strip())
        start = len(self._decode_all([[anchor]])[0])
        texts = self._decode_all([[anchor, token] for token in range(known)])
        return [text[start:] for text in texts] + [""] * (size - known)

    def _decode_all(self, sequences: Sequence[Sequence[int]]) -> list[str]:
        texts: list[str] = self._tokenizer.batch_decode(
            sequences, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return texts
