"""Traces for the scripted engine: a vocabulary that carries scores, and where the next tokens come from.

A trace's tokens say everything about it. Each thought begins with a token that names its score, so that a
branch or a resumed trace goes on from its tokens alone, a boundary's row can carry the score, and a
scripted scorer reads it back with `score_in`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from decoder_worker.engine.base import EngineError, HiddenRow

END, BLANK, FILLER, NO_NUMBER = range(4)
_SCORES = 10  # first of 1001 tokens that stand for scores 0.000 to 1.000
_CHARACTERS = 2000  # a character's token is this plus its code point

_WORDS = {END: "", BLANK: "\n\n", FILLER: " so"}


def score_token(score: float) -> int:
    """The token that opens a thought of this score, in [0, 1]; NaN for a row that is no number."""
    return NO_NUMBER if math.isnan(score) else _SCORES + round(score * 1000)


def score_of(token: int) -> float | None:
    """The score that a token stands for; None for other tokens."""
    if token == NO_NUMBER:
        return math.nan
    return (token - _SCORES) / 1000 if _SCORES <= token <= _SCORES + 1000 else None


def text_tokens(text: str) -> list[int]:
    """One token per character, a blank line being one token."""
    return [BLANK if part == "\0" else _CHARACTERS + ord(part) for part in text.replace("\n\n", "\0")]


def score_in(row: HiddenRow) -> float:
    """What a scripted row carries: the score of its thought."""
    score: float = struct.unpack_from("<f", row.data)[0]
    return score


class ScriptedTokenizer:
    """The scripted vocabulary as a `Tokenizer`."""

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return text_tokens("".join(f"{message['role']}: {message['content']}\n" for message in messages))

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(_text, tokens))


def _text(token: int) -> str:
    if token >= _CHARACTERS:
        return chr(token - _CHARACTERS)
    if token in _WORDS:
        return _WORDS[token]
    return f"[{score_of(token):.3f}]"


def write_thought(tokens: int, score: float) -> list[int]:
    """A thought of so many tokens, its score token and its boundary included; at least 2."""
    if tokens < 2:
        raise ValueError(f"a thought of {tokens} tokens cannot be written, at least 2 are needed")
    return [score_token(score), *[FILLER] * (tokens - 2), BLANK]


def write_trace(thoughts: Sequence[tuple[int, float]], answer: str | None = None) -> list[int]:
    r"""A trace of thoughts (tokens, score) that ends with `\boxed{answer}` and the end token."""
    tokens = [token for length, score in thoughts for token in write_thought(length, score)]
    if answer is not None:
        tokens += text_tokens(f"\\boxed{{{answer}}}")
    return [*tokens, END]


def drawn_confidence(trace_id: str, position: int, score: float) -> float:
    """Confidence of a token at this position in a thought of this score: the better the thought the surer,
    with noise, the same each time it is asked for."""
    known = 0.5 if math.isnan(score) else score
    return max(0.0, Random(f"{position} {known}").gauss(6.0 + 8.0 * known, 0.5))


class TraceSource(Protocol):
    """Where the tokens of traces come from."""

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        """New tokens of a trace that is added with these. A source that ends has given the END token."""
        ...


class Replay:
    """Given traces. traces: own tokens by trace id, that is those after the first add's tokens.

    A trace that is added again goes on where its tokens end. Raises EngineError for one that is not given.
    """

    def __init__(self, traces: Mapping[str, Sequence[int]]) -> None:
        self._traces = traces
        self._starts: dict[str, int] = {}

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        if trace_id not in self._traces:
            raise EngineError(f"no script for trace {trace_id}")
        start = self._starts.setdefault(trace_id, len(tokens))
        return iter(self._traces[trace_id][len(tokens) - start :])


def _thoughts(random: Random) -> int:
    return max(1, round(random.lognormvariate(2.3, 0.4)))


def _thought_tokens(random: Random) -> int:
    return random.randint(20, 60)


def _quality(random: Random) -> float:
    return random.betavariate(2.0, 2.0)


def _answer(random: Random, quality: float) -> str:
    return "29" if random.random() < quality else random.choice(["52", "17", "31", "8"])


@dataclass(frozen=True)
class Drawn:
    """Traces drawn at random, the same for the same seed.

    The quality of a thought is `correlation` times that of the thought before it, also if that was its
    parent's, plus the rest of a fresh draw: at 1 a trace and all its branches keep the quality of their
    root. The score is the quality with normal noise. thoughts: thoughts of a whole trace. thought_tokens:
    tokens of one, at least 2. answer: from the quality at the end, in [0, 1].
    """

    seed: int = 0
    correlation: float = 0.9
    noise: float = 0.05
    thoughts: Callable[[Random], int] = _thoughts
    thought_tokens: Callable[[Random], int] = _thought_tokens
    quality: Callable[[Random], float] = _quality
    answer: Callable[[Random, float], str] = _answer
    _tries: int = field(default=100, repr=False)

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        random = Random(f"{self.seed} {trace_id} {len(tokens)}")
        scores = [score for token in tokens if (score := score_of(token)) is not None]
        inside = bool(scores) and BLANK not in tokens[_last(tokens, score_of) :]
        done = len(scores) - inside
        quality = scores[-1] if scores else self.quality(random)
        if inside:
            yield from write_thought(self.thought_tokens(random), quality)[1:]
            done += 1
        answering = bool(scores) and tokens[-1] >= _CHARACTERS
        for _ in range(0 if answering else self._total(random, done) - done):
            if done:
                fresh = self.quality(random)
                quality = self.correlation * quality + (1 - self.correlation) * fresh
            score = min(max(random.gauss(quality, self.noise), 0.0), 1.0)
            yield from write_thought(self.thought_tokens(random), score)
            done += 1
        yield from text_tokens(f"\\boxed{{{self.answer(random, quality)}}}")
        yield END

    def _total(self, random: Random, done: int) -> int:
        """Thoughts of the whole trace, given that it has so many already."""
        draws = (self.thoughts(random) for _ in range(self._tries))
        return next((draw for draw in draws if draw > done), done)


def _last(tokens: Sequence[int], wanted: Callable[[int], float | None]) -> int:
    return next(index for index in range(len(tokens) - 1, -1, -1) if wanted(tokens[index]) is not None)
