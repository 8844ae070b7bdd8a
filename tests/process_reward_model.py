"""A small process reward model in the form of Qwen2.5-Math-PRM, with random weights, and what it computes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

CHAT_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nReason step by step.<|im_end|>\n{% endif %}"
    "{% for m in messages %}"
    "{% if m['role'] == 'oracle' %}{{ raise_exception('unknown role') }}{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<extra_0>")
WORDS = ("12", "step", "start", "user", "assistant", "so", "the")


def make_tokenizer(special: Sequence[str] = SPECIAL) -> Any:
    """A byte-level tokenizer: any text is ordinary text for it, and some words are one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate(alphabet)}
    merges = []
    for word in WORDS:
        for end in range(2, len(word) + 1):
            if word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((word[: end - 1], word[end - 1]))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(special))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False)
    fast.chat_template = CHAT_TEMPLATE
    return fast


class ProcessRewardModel(nn.Module):
    """Qwen2 with two values per token, in float32; tensors are named as in the published checkpoints."""

    def __init__(self, vocabulary: int, positions: int = 1024, architecture: str | None = None) -> None:
        super().__init__()
        from transformers import Qwen2Config, Qwen2Model

        self.config = Qwen2Config(
            vocab_size=vocabulary,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=positions,
        )
        self.config.architectures = [architecture or "Qwen2ForProcessRewardModel"]
        self.config.dtype = "float32"
        torch.manual_seed(0)
        self.model = Qwen2Model(self.config)
        self.score = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
        with torch.no_grad():
            # scores that differ from token to token
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.3)

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int]) -> torch.Tensor:
        """The probability of the class "good" at each token, [tokens]."""
        hidden = self.model(torch.tensor([list(tokens)])).last_hidden_state[0]
        probabilities: torch.Tensor = self.score(hidden).softmax(-1)[:, 1]
        return probabilities

    def save(self, folder: Path, tokenizer: Any) -> None:
        """Writes a Hugging Face directory."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file(
            {name: t.contiguous() for name, t in self.state_dict().items()}, folder / "model.safetensors"
        )
        self.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


class Reference:
    """Scores as the published example computes them: one text with separators, one plain forward pass.

    That is right for texts in which no special token is written.
    """

    def __init__(self, positions: int = 1024) -> None:
        self.tokenizer = make_tokenizer()
        self.model = ProcessRewardModel(len(self.tokenizer), positions).eval()

    def scores(self, question: str, steps: Sequence[str]) -> npt.NDArray[np.float32]:
        """float32 [steps]"""
        chat = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "".join(step + "<extra_0>" for step in steps)},
        ]
        tokens = torch.tensor(self.tokenizer.apply_chat_template(chat, return_dict=False))
        separator = self.tokenizer.convert_tokens_to_ids("<extra_0>")
        found: npt.NDArray[np.float32] = self.model(tokens.tolist())[tokens == separator].numpy()
        return found
