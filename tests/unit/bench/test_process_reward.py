"""The process reward model of the tiny reasoner's task: it is trained on what it reads when it serves."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from bench.tiny_reasoner.data import draw_ledger
from bench.tiny_reasoner.demonstrator import demonstrate
from bench.tiny_reasoner.process_reward import (
    SEPARATOR,
    ProcessRewardModel,
    auroc,
    collate,
    draw_example,
    export,
    from_reasoner,
    train,
)
from prm_worker.process_reward.prompt import build_prompt
from prm_worker.process_reward.tokenizer import PromptTokenizer
from thoughtbeam.models import BUNDLED_MODEL

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def model() -> ProcessRewardModel:
    torch.manual_seed(0)
    return from_reasoner(BUNDLED_MODEL)


def test_what_it_is_trained_on_is_what_it_reads(model: ProcessRewardModel, tmp_path: Path) -> None:
    export(model, tmp_path)
    tokenizer = PromptTokenizer.load(str(tmp_path))
    for seed in range(5):
        ids, classes = draw_example(random.Random(seed))
        rng = random.Random(seed)
        ledger = draw_ledger(rng, 14)
        demonstration = demonstrate(ledger, rng)
        steps = [*(thought.text for thought in demonstration.thoughts), "</think>"]
        prompt = build_prompt(tokenizer, [("user", ledger.question())], steps, 0, 1280)
        assert list(prompt.tokens) == ids[: len(prompt.tokens)]
        assert [place for place, token in enumerate(ids) if token == SEPARATOR] == list(prompt.places)
        labels = [int(thought.on_path) for thought in demonstration.thoughts]
        assert [classes[place] for place in prompt.places] == [*labels, labels[-1]][: len(prompt.places)]


def test_training_changes_what_it_says_of_thoughts(model: ProcessRewardModel) -> None:
    ids, classes = collate([draw_example(random.Random(0))])
    before = model(ids)[classes >= 0].detach()
    assert train(model, minutes=5, seed=0, batch=1, most_steps=2) == 2
    after = model(ids)[classes >= 0].detach()
    assert torch.isfinite(after).all()
    assert not torch.allclose(before, after)
    assert 0 <= auroc(model, examples=2) <= 1
