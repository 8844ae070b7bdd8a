"""Trains a small process reward model for the tiny reasoner's task, in the form of Qwen2.5-Math-PRM:

    python -m bench.tiny_reasoner.process_reward --minutes 10 --out OUT
    python -m prm_worker --process-reward OUT

It reads text: the question and the thoughts, each followed by `<extra_0>`. What it learns is whether the
value that a demonstrator's thought arrives at is that of the true path. It starts from the bundled reasoner's
weights, as far as the architectures agree. With --minutes 0 its head is random: a scorer that knows nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2Model

from bench.tiny_reasoner.data import draw_ledger
from bench.tiny_reasoner.demonstrator import demonstrate
from bench.tiny_reasoner.export import make_tokenizer
from bench.tiny_reasoner.tokenizer import PAD, VOCABULARY, VOCABULARY_SIZE, encode
from thoughtbeam.models import BUNDLED_MODEL

SEPARATOR = len(VOCABULARY)  # the reasoner's embedding has rows to spare
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# how the end of the thinking, a thought of its own, is spelt for a model to which it is ordinary text
_END_OF_THINKING = [VOCABULARY[character] for character in "</think>"]
_MOST_STEPS = 14
_MAX_LENGTH = 1280
_IGNORED = -100

Example = tuple[
    list[int], list[int]
]  # token ids; per token the class of the thought that it ends, or _IGNORED


class ProcessRewardModel(nn.Module):
    """A Qwen2 decoder with the head of Qwen2ForProcessRewardModel, whose tensor names it has."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.config = config
        self.model: Any = Qwen2Model(config)
        size: int = config.hidden_size
        self.score = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, 2))

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] to logits of the classes bad and good, [B, T, 2]; padding is to the right."""
        logits: Tensor = self.score(self.model(ids).last_hidden_state)
        return logits


def from_reasoner(folder: Path) -> ProcessRewardModel:
    """With a reasoner's weights. It normalises queries and keys, which Qwen2 does not: in their place stands
    the mean of what that divides by."""
    reasoner: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    theirs = reasoner.config
    config = Qwen2Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=theirs.hidden_size,
        intermediate_size=theirs.intermediate_size,
        num_hidden_layers=theirs.num_hidden_layers,
        num_attention_heads=theirs.num_attention_heads,
        num_key_value_heads=theirs.num_key_value_heads,
        max_position_embeddings=theirs.max_position_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": theirs.rope_parameters["rope_theta"]},
        rms_norm_eps=theirs.rms_norm_eps,
        pad_token_id=PAD,
    )
    config.architectures = ["Qwen2ForProcessRewardModel"]
    config.dtype = "float32"
    model = ProcessRewardModel(config)
    scales = _norms(reasoner)
    own = model.model.state_dict()
    for name, tensor in reasoner.model.state_dict().items():
        if name == "embed_tokens.weight":
            # a separator is what a blank line was
            own[name] = tensor.clone()
            own[name][SEPARATOR] = tensor[VOCABULARY["\n\n"]]
        elif not name.endswith(("q_norm.weight", "k_norm.weight")):
            own[name] = tensor * scales.get(name, 1.0)
    for name in own:
        if name.endswith("proj.bias"):
            own[name] = torch.zeros_like(own[name])
    model.model.load_state_dict(own)
    return model


def _norms(reasoner: Any) -> dict[str, Tensor]:
    """By name of a projection to queries or keys, the factor of each of its rows, [rows, 1]."""
    seen: dict[str, Tensor] = {}
    hooks = []
    for number, layer in enumerate(reasoner.model.layers):
        for kind in ("q", "k"):
            norm = getattr(layer.self_attn, f"{kind}_norm")
            name = f"layers.{number}.self_attn.{kind}_proj.weight"

            def keep(norm: Any, inputs: tuple[Tensor], _: Tensor, name: str = name) -> None:
                size = inputs[0].square().mean(-1).sqrt().mean((0, 1))  # [heads]
                seen[name] = (norm.weight / size.unsqueeze(-1)).reshape(-1, 1)

            hooks.append(norm.register_forward_hook(keep))
    ids, _ = draw_example(random.Random(0))
    with torch.no_grad():
        reasoner(torch.tensor([[token for token in ids if token != SEPARATOR]]))
    for hook in hooks:
        hook.remove()
    return seen


def draw_example(rng: random.Random) -> Example:
    """A question and a demonstrator's trace of it, as a process reward model reads it."""
    ledger = draw_ledger(rng, _MOST_STEPS)
    demonstration = demonstrate(ledger, rng)
    ids = encode(f"<|im_start|>user\n{ledger.question()}<|im_end|>\n<|im_start|>assistant\n")
    classes = [_IGNORED] * len(ids)
    steps = [(encode(thought.text), int(thought.on_path)) for thought in demonstration.thoughts]
    steps.append((_END_OF_THINKING, steps[-1][1]))
    for tokens, on_path in steps:
        ids += [*tokens, SEPARATOR]
        classes += [*[_IGNORED] * len(tokens), on_path]
    return ids[:_MAX_LENGTH], classes[:_MAX_LENGTH]


def collate(examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
    """Ids and classes, each [B, T], padded to the right."""
    longest = max(len(ids) for ids, _ in examples)
    ids = torch.tensor([ids + [PAD] * (longest - len(ids)) for ids, _ in examples])
    classes = torch.tensor([own + [_IGNORED] * (longest - len(own)) for _, own in examples])
    return ids, classes


def train(
    model: ProcessRewardModel,
    minutes: float,
    seed: int,
    batch: int = 8,
    rate: float = 1e-3,
    most_steps: int = 1_000_000,
) -> int:
    """Trains on fresh demonstrations; returns the number of steps."""
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.97), weight_decay=0.01)
    began, steps = time.monotonic(), 0
    while (passed := time.monotonic() - began) < minutes * 60:
        progress = passed / (minutes * 60)
        # examples alike in length: little of a batch is padding
        drawn = sorted((draw_example(rng) for _ in range(8 * batch)), key=lambda one: len(one[0]))
        groups = [drawn[start : start + batch] for start in range(0, len(drawn), batch)]
        rng.shuffle(groups)
        for group in groups:
            for settings in optimizer.param_groups:
                settings["lr"] = rate * min(1.0, (steps + 1) / 50) * max(0.03, 1 - progress)
            ids, classes = collate(group)
            loss = functional.cross_entropy(
                model(ids).transpose(1, 2), classes, ignore_index=_IGNORED, label_smoothing=0.01
            )
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            steps += 1
            if steps == most_steps:
                return steps
            if steps % 50 == 0:
                print(f"{progress:4.0%}  step {steps}  loss {loss.item():.4f}", flush=True)
    return steps


@torch.inference_mode()
def auroc(model: ProcessRewardModel, examples: int = 100, seed: int = 1_000_003) -> float:
    """Of single thoughts of demonstrations that were not trained on: does the value lie on the true path?"""
    rng = random.Random(seed)
    scores, labels = [], []
    for _ in range(examples):
        ids, classes = collate([draw_example(rng)])
        ends = classes[0] != _IGNORED
        scores.append(model(ids)[0, ends].softmax(-1)[:, 1])
        labels.append(classes[0, ends])
    score, label = torch.cat(scores), torch.cat(labels).bool()
    good, bad = score[label].unsqueeze(1), score[~label].unsqueeze(0)
    return ((good > bad).double().mean() + 0.5 * (good == bad).double().mean()).item()


def export(model: ProcessRewardModel, folder: Path) -> None:
    """Writes a Hugging Face directory that vLLM serves as a pooling model. In bfloat16: float32 vLLM would by
    itself cast to float16, in which CPUs are three times slower."""
    folder.mkdir(parents=True, exist_ok=True)
    state = model.state_dict()
    weights = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in state.items()}
    model.config.dtype = torch.bfloat16
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(folder)
    tokenizer = make_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<extra_0>"]})
    if tokenizer.convert_tokens_to_ids("<extra_0>") != SEPARATOR:
        raise ValueError(f"<extra_0> is not token {SEPARATOR}")
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=Path, default=BUNDLED_MODEL, help="folder of a tiny reasoner")
    parser.add_argument("--out", type=Path, required=True, help="folder to export to")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = from_reasoner(options.start)
    steps = train(model, options.minutes, options.seed)
    found = auroc(model.eval())
    export(model, options.out)
    card = {"steps": steps, "minutes": options.minutes, "seed": options.seed, "auroc_of_thoughts": found}
    (options.out / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    print(f"exported to {options.out}: AUROC of single thoughts {found:.3f}")


if __name__ == "__main__":
    main()
