"""The trainer learns, and what it exports is what it trained."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from bench.tiny_reasoner.data import batches, draw_ledger
from bench.tiny_reasoner.export import export_model, load_model
from bench.tiny_reasoner.model import Shape, TinyReasoner
from bench.tiny_reasoner.muon import orthogonalise
from bench.tiny_reasoner.tokenizer import BLANK_LINE, PAD, decode, encode, prompt
from bench.tiny_reasoner.train import train
from bench.tiny_reasoner.training import Trainer, TrainingConfig, most_steps, rate_scale
from thoughtbeam.models import BUNDLED_MODEL

SMALL = Shape(hidden=32, inner=64, layers=2, heads=2, kv_heads=1, head_size=16, positions=512)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """For matrices this small, threads that wait for each other cost more than they compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
def test_a_short_training_reduces_the_loss() -> None:
    torch.manual_seed(0)
    config = TrainingConfig(minutes=1, batch_tokens=1024, max_length=320, processes=1)
    trainer = Trainer(TinyReasoner(SMALL), config)
    losses = [trainer.step(progress=0.05) for _ in range(40)]
    first, last = losses[0], losses[-5:]
    assert first.tokens == pytest.approx(torch.tensor(128.0).log().item(), abs=0.7)
    assert sum(loss.tokens for loss in last) / 5 < 0.75 * first.tokens


@pytest.mark.parametrize("folder", [BUNDLED_MODEL, None], ids=["bundled", "new"])
def test_transformers_computes_the_logits_that_the_model_computes(
    folder: Path | None, tmp_path: Path
) -> None:
    if folder is None:
        torch.manual_seed(1)
        folder = tmp_path / "model"
        export_model(TinyReasoner(SMALL), folder)
    ours = load_model(folder).eval()
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    question = draw_ledger(random.Random(5), 10).question()
    ids = torch.tensor([encode(prompt(question))])
    with torch.inference_mode():
        difference = ours.logits(ours(ids)) - theirs(ids).logits
    assert difference.abs().max() < 1e-4


def test_an_export_is_the_bundled_model_in_every_file(tmp_path: Path) -> None:
    export_model(load_model(BUNDLED_MODEL), tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == (BUNDLED_MODEL / "model.safetensors").read_bytes()
    exported, bundled = (AutoTokenizer.from_pretrained(folder) for folder in (tmp_path, BUNDLED_MODEL))
    assert exported.chat_template == bundled.chat_template
    assert exported.get_vocab() == bundled.get_vocab()
    assert (exported.eos_token_id, exported.pad_token_id) == (bundled.eos_token_id, bundled.pad_token_id)


def test_training_goes_on_from_an_exported_model_in_two_processes(tmp_path: Path) -> None:
    torch.manual_seed(2)
    export_model(TinyReasoner(SMALL), tmp_path / "start")
    config = TrainingConfig(minutes=0.02, batch_tokens=512, max_length=256, processes=2)
    train(config, tmp_path / "start", tmp_path / "out")
    before, after = load_model(tmp_path / "start"), load_model(tmp_path / "out")
    assert after.shape == SMALL
    assert not torch.equal(before.embed_tokens.weight, after.embed_tokens.weight)


def test_a_batch_marks_what_is_learned() -> None:
    config = TrainingConfig(minutes=1)
    for batch in batches(random.Random(4), 8, config.batch_tokens, config.max_length, examples=40):
        assert batch.ids.numel() <= 1.5 * config.batch_tokens
        for ids, generated, boundaries, values in zip(
            batch.ids, batch.generated, batch.boundaries, batch.values, strict=True
        ):
            assert decode(ids[generated].tolist()).endswith("<|im_end|>")
            assert decode(ids[~generated & (ids != PAD)].tolist()).endswith("<think>\n")
            assert torch.equal(boundaries, ids == BLANK_LINE)
            assert not values[~boundaries].any()


def test_questions_grow_with_the_curriculum_and_rates_fall_at_the_end() -> None:
    config = TrainingConfig(minutes=1, curriculum=0.1)
    assert [most_steps(config, progress) for progress in (0.0, 0.09, 0.11, 0.29, 0.31, 1.0)] == [
        4,
        4,
        8,
        8,
        14,
        14,
    ]
    assert rate_scale(0, 0.0) == pytest.approx(1 / 60)
    assert rate_scale(60, 0.4) == 1.0
    assert rate_scale(600, 0.75) == pytest.approx(0.515)
    assert rate_scale(600, 1.0) == pytest.approx(0.03)


@pytest.mark.parametrize("shape", [(3, 8, 32), (2, 32, 8)])
def test_orthogonalised_updates_have_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(3)
    values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
    assert values.min() > 0.5
    assert values.max() < 1.4
