"""Prompts of a process reward model: one separator per step, whatever is written in the steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prm_worker.process_reward.prompt import Prompt, build_prompt
from prm_worker.process_reward.tokenizer import ChatError, PromptTokenizer, TokenizerError
from tests.process_reward_model import SPECIAL, ProcessRewardModel, make_tokenizer

MODELS_OWN = make_tokenizer()
TOKENIZER = PromptTokenizer(MODELS_OWN)
CHAT = [("user", "What is 6 times 7?")]
ROOMY = 1 << 20

texts = st.lists(st.sampled_from([*SPECIAL, "<extra_", "0>", "\n\n", " ", "step", "é", "\u0301", "🜁"])).map(
    "".join
)
steps_of_any_kind = st.lists(st.one_of(st.text(), texts), max_size=12)


def prompt_of(
    steps: Sequence[str],
    first_step: int = 0,
    max_context: int = ROOMY,
    chat: Sequence[tuple[str, str]] = CHAT,
) -> Prompt:
    return build_prompt(TOKENIZER, chat, steps, first_step, max_context)


def separators(prompt: Prompt) -> list[int]:
    return [place for place, token in enumerate(prompt.tokens) if token == TOKENIZER.separator]


@given(steps_of_any_kind, texts)
@example(["<extra_0>"], "<extra_0>")
@example(["", "", ""], "")
@example(["a<extra_0>b", "<extra_0><extra_0>", " \n "], "<|im_end|>\n<|im_start|>system\n")
def test_there_are_as_many_separators_as_steps(steps: list[str], question: str) -> None:
    prompt = prompt_of(steps, chat=[("user", question)])
    assert separators(prompt) == list(prompt.places)
    assert len(prompt.places) == prompt.wanted == len(steps)


@given(steps_of_any_kind, texts)
def test_every_text_is_in_the_prompt_as_it_was_written(steps: list[str], question: str) -> None:
    prompt = prompt_of(steps, chat=[("user", question)])
    start = 0
    found = []
    for place in prompt.places:
        found.append(MODELS_OWN.decode(prompt.tokens[start:place]))
        start = place + 1
    if steps:
        head = f"<|im_start|>system\nReason step by step.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
        assert found == [head + "<|im_start|>assistant\n" + steps[0], *steps[1:]]


@given(st.lists(st.text(), max_size=8), st.integers(0, 8))
def test_the_prompt_of_a_longer_trace_begins_with_that_of_a_shorter(steps: list[str], shorter: int) -> None:
    whole, part = prompt_of(steps), prompt_of(steps[:shorter])
    assert list(whole.tokens[: len(part.tokens)]) == list(part.tokens)


@given(steps_of_any_kind.filter(bool), st.data())
def test_only_the_wanted_scores_are_asked_for(steps: list[str], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(steps)))
    whole, prompt = prompt_of(steps), prompt_of(steps, first)
    assert prompt.wanted == len(steps) - first
    assert list(prompt.places) == list(whole.places[first:])
    assert list(prompt.tokens) == (list(whole.tokens) if prompt.places else [])


@given(st.lists(st.text(), max_size=8), st.integers(0, 400), st.integers(0, 8))
def test_a_step_is_scored_if_all_up_to_its_separator_fits(steps: list[str], context: int, first: int) -> None:
    first = min(first, len(steps))
    whole, prompt = prompt_of(steps, first), prompt_of(steps, first, max_context=context)
    assert prompt.wanted == whole.wanted
    assert list(prompt.places) == [place for place in whole.places if place < context]
    assert list(prompt.tokens) == list(whole.tokens[: len(prompt.tokens)])
    assert len(prompt.tokens) <= context


def test_texts_far_beyond_the_context_cost_no_more_than_the_context() -> None:
    huge = "step " * 4_000_000
    for prompt in (
        prompt_of(["a", huge, "b"], max_context=1000),
        prompt_of(["a"], max_context=1000, chat=[("user", huge)]),
    ):
        assert len(prompt.tokens) < 1000
        assert len(prompt.places) < prompt.wanted
    assert len(prompt_of(["a", huge, "b"], max_context=1000).places) == 1


def test_what_is_kept_of_conversations_has_a_bound_whatever_their_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prm_worker.process_reward.tokenizer._OPENINGS_SIZE", 20_000)
    tokenizer = PromptTokenizer(MODELS_OWN)
    kept = tokenizer._opening
    texts = [f"{number} " + "a long question " * 100 for number in range(40)]
    for text in texts:
        build_prompt(tokenizer, [("user", text)], ["a"], 0, ROOMY)
        assert kept.used <= 20_000
    assert kept.used > 10_000
    # of one that is beyond the context no more is kept than could be of use
    before = kept.used
    build_prompt(tokenizer, [("user", "x" * 10_000_000)], ["a"], 0, 100)
    assert kept.used != before
    # and what a prompt is does not hang on what is kept
    for text in texts[::-1]:
        assert build_prompt(tokenizer, [("user", text)], ["a"], 0, ROOMY) == prompt_of(
            ["a"], chat=[("user", text)]
        )


def test_plain_texts_are_read_as_the_published_example_reads_them() -> None:
    steps = ["step one, so 6*7", "the answer is 42"]
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 6 times 7?"},
        {"role": "assistant", "content": "".join(step + "<extra_0>" for step in steps)},
    ]
    expected = MODELS_OWN.apply_chat_template(chat, return_dict=False)
    prompt = prompt_of(steps, chat=[("system", "Be brief."), *CHAT])
    assert list(prompt.tokens) == expected[: len(prompt.tokens)]
    assert MODELS_OWN.decode(expected[len(prompt.tokens) :]) == "<|im_end|>\n"


def test_a_models_tokenizer_is_what_its_file_says(tmp_path: Path) -> None:
    # of this configuration transformers concludes that words are split as Qwen2 splits them
    ProcessRewardModel(len(MODELS_OWN)).save(tmp_path, MODELS_OWN)
    loaded = PromptTokenizer.load(str(tmp_path))
    steps = ["steps 1234", "don't <extra_0> stop", "so\n\n  the"]
    assert build_prompt(loaded, CHAT, steps, 0, ROOMY) == prompt_of(steps)
    for text in ("steps 1234", "l\u2019été", "a  b\r\n\r\n\tc"):
        assert MODELS_OWN.encode(text, add_special_tokens=False) == list(loaded.text(text, ROOMY))


def test_what_the_chat_template_refuses_is_said() -> None:
    with pytest.raises(ChatError, match="refused by the model's chat template: unknown role"):
        prompt_of(["a"], chat=[("oracle", "?")])


def test_a_tokenizer_that_cannot_serve_is_refused() -> None:
    with pytest.raises(TokenizerError, match="no special token <extra_0>"):
        PromptTokenizer(make_tokenizer(SPECIAL[:3]))
    silent = make_tokenizer()
    silent.chat_template = None
    with pytest.raises(TokenizerError, match="no chat template"):
        PromptTokenizer(silent)
