"""What the model reads of one trace, and where in it the scores are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prm_worker.process_reward.tokenizer import Message, PromptTokenizer


@dataclass(frozen=True, slots=True)
class Prompt:
    """tokens: the conversation and the steps, each followed by the separator, up to the last one that a score
    is wanted of; empty if none is. places: positions in `tokens` of the wanted steps' separators. wanted:
    number of scores to answer; above len(places) when the trace is longer than the model's context."""

    tokens: Sequence[int]
    places: Sequence[int]
    wanted: int


def build_prompt(
    tokenizer: PromptTokenizer,
    messages: Sequence[Message],
    steps: Sequence[str],
    first_step: int,
    max_context: int,
) -> Prompt:
    """The prompt for scores of steps[first_step:], whatever their texts are.

    A step can be scored when the conversation and all steps up to it, with their separators, are at most
    max_context tokens long: what the model reads of a trace is the same at each of its thoughts, and no step
    is scored without those before it. Raises ChatError.
    """
    tokens = list(tokenizer.opening(messages, max_context))
    places = []
    for number, step in enumerate(steps):
        room = max_context - len(tokens) - 1  # one is for the separator
        own = tokenizer.text(step, room)
        if len(own) > room:
            break
        tokens += own
        tokens.append(tokenizer.separator)
        if number >= first_step:
            places.append(len(tokens) - 1)
    return Prompt(tokens[: places[-1] + 1] if places else [], places, max(0, len(steps) - first_step))
