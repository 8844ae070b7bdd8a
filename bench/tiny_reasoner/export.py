"""The tiny reasoner as a Hugging Face directory, which stock vLLM and transformers load, and back."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config

from bench.tiny_reasoner.model import Shape, TinyReasoner
from bench.tiny_reasoner.tokenizer import (
    BOS,
    CHAT_TEMPLATE,
    CONTROL,
    END,
    PAD,
    TEXT_PATTERN,
    THINKING,
    VOCABULARY,
    VOCABULARY_SIZE,
)

_WEIGHTS = "model.safetensors"
# Hugging Face puts the decoder below the language model
_PREFIX = "model."


def export_model(model: TinyReasoner, folder: Path) -> None:
    """Writes weights (bfloat16), configuration, tokenizer and chat template into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {
        _PREFIX + name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
    }
    save_file(weights, folder / _WEIGHTS, metadata={"format": "pt"})
    _configuration(model.shape).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    generation = {"eos_token_id": END, "pad_token_id": PAD, "do_sample": True, "temperature": 1.0}
    (folder / "generation_config.json").write_text(json.dumps(generation))


def load_model(folder: Path) -> TinyReasoner:
    """The model of a folder written by `export_model`, in float32."""
    config = json.loads((folder / "config.json").read_text())
    shape = Shape(
        hidden=config["hidden_size"],
        inner=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_size=config["head_dim"],
        positions=config["max_position_embeddings"],
        base=config["rope_parameters"]["rope_theta"],
    )
    model = TinyReasoner(shape)
    weights = load_file(folder / _WEIGHTS)
    model.load_state_dict({name.removeprefix(_PREFIX): tensor.float() for name, tensor in weights.items()})
    return model


def _configuration(shape: Shape) -> Qwen3Config:
    config = Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        max_position_embeddings=shape.positions,
        rope_parameters={"rope_type": "default", "rope_theta": shape.base},
        rms_norm_eps=1e-6,
        tie_word_embeddings=True,
        eos_token_id=END,
        bos_token_id=BOS,
        pad_token_id=PAD,
    )
    config.architectures = ["Qwen3ForCausalLM"]
    config.dtype = "bfloat16"
    return config


def make_tokenizer() -> PreTrainedTokenizerFast:
    """The vocabulary as a Hugging Face tokenizer."""
    tokenizer = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(TEXT_PATTERN), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(CONTROL))
    # not special: they are part of the text that a client reads
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in THINKING])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        bos_token="<bos>",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast
