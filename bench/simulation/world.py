"""What a simulated model and its scorer do, drawn from given distributions: the traces of a `ScriptedEngine`.

    d    a question's difficulty     z    a trace's state: the higher, the likelier is it to end right
    L    its length in tokens        a    its approach: traces of one approach think nearly the same

A root begins at z = d and takes an independent normal step with every thought; it ends right if z > 0 at its
end. The score of a thought is what a scorer makes of z, with noise that is new each time and a prejudice for
or against the approach, which stays. A branch has its parent's a, and its z up to the branch point; from
there on both go on by themselves, each to a length of its own. a, z and whether the answer follows stand in
a token of every thought, so a trace goes on from its tokens alone.
"""

from __future__ import annotations

import math
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from random import Random
from statistics import NormalDist

from decoder_worker.engine.scripted_traces import (
    BLANK,
    END,
    FILLER,
    ScriptedTokenizer,
    score_of,
    score_token,
    text_tokens,
)

RIGHT = "29"
_WRONG = ("52", "17", "31", "80", "64", "43")
_NORMAL = NormalDist()

_STATES = 0x200000  # first token that stands for a state, beyond all characters
_LEVELS, _STEP = 1001, 0.01  # of z, around 0
_SHORTEST = 3  # tokens of a thought: its score, its state, and its boundary
_ANSWER = len(text_tokens(f"\\boxed{{{RIGHT}}}")) + 1
_TAIL = 1e-12  # quantiles closer to 0 or 1 are not drawn

_NOISES = 4096
_KNUTH = 2654435761


@dataclass(frozen=True, slots=True)
class State:
    """Of a trace in a thought. last: the answer follows."""

    approach: int
    z: float
    last: bool = False

    @property
    def token(self) -> int:
        """The token that stands for it."""
        level = round(self.z / _STEP) + _LEVELS // 2
        level = min(max(level, 0), _LEVELS - 1)
        return _STATES + (self.approach * _LEVELS + level) * 2 + self.last

    @classmethod
    def of(cls, token: int) -> State | None:
        """What a token stands for; None for other tokens."""
        if token < _STATES:
            return None
        number, last = divmod(token - _STATES, 2)
        approach, level = divmod(number, _LEVELS)
        return cls(approach, (level - _LEVELS // 2) * _STEP, bool(last))


class SimulatedTokenizer(ScriptedTokenizer):
    """The scripted vocabulary and the states."""

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(_text, tokens))


@lru_cache(maxsize=65_536)
def _text(token: int) -> str:
    state = State.of(token)
    return ScriptedTokenizer().decode((token,)) if state is None else f"<{state.approach}:{state.z:+.2f}>"


@dataclass(frozen=True)
class Lengths:
    """Log-normal lengths, in tokens: the larger sigma, the heavier the tail."""

    median: float = 450.0
    sigma: float = 0.4

    def within(self, tokens: float) -> float:
        """F: the share of lengths of at most so many tokens."""
        return _NORMAL.cdf(math.log(tokens / self.median) / self.sigma) if tokens > 0 else 0.0

    def draw(self, random: Random, beyond: int = 0) -> int:
        """A length, given that it is longer than `beyond`."""
        known = self.within(beyond)
        quantile = min(max(known + (1 - known) * random.random(), _TAIL), 1 - _TAIL)
        length = self.median * math.exp(self.sigma * _NORMAL.inv_cdf(quantile))
        return max(beyond + 1, math.ceil(length))


@dataclass(frozen=True)
class World:
    """A `TraceSource`, the same for the same seed, whatever the order in which it is asked.

    prompt: tokens of every question. thought: mean tokens of one, drawn from half to one and a half times
    that. ease, difficulty: mean and standard deviation of d over the questions. spread: standard deviation
    of what z does over a trace of median length. noise, prejudice: standard deviations of the scorer's, on
    the scale of z. approaches: of a question, the first one half as likely again as the second, and so on;
    those who end wrong by the same approach end at the same answer. vagueness: how far thoughts of one
    approach may lie apart. surest, doubt, flicker: confidence of a token at score 1, how much lower it is at
    score 0, and the standard deviation of its noise.
    """

    seed: int = 0
    prompt: int = 64
    lengths: Lengths = Lengths()
    thought: int = 40
    ease: float = 0.0
    difficulty: float = 0.7
    spread: float = 1.0
    noise: float = 0.8
    prejudice: float = 0.8
    approaches: int = 12
    vagueness: float = 0.6
    surest: float = 14.0
    doubt: float = 8.0
    flicker: float = 1.5

    def question(self, tree_id: str) -> tuple[int, ...]:
        """The prompt of a question: one of its own, so that no two trees share KV."""
        return (*text_tokens(tree_id.ljust(self.prompt)[: self.prompt]),)

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        random = Random(f"{self.seed} {trace_id} {len(tokens)}")
        state = self._state(tokens) or self._first_state(trace_id, random)
        done = len(tokens) - self.prompt
        for token in self._rest_of_thought(tokens, random, state):
            yield token
            done += 1
        if not state.last:
            # of its length it is known that more than the answer is to come
            known = done + _SHORTEST + _ANSWER - 1
            left = self.lengths.draw(random, beyond=known) - done - _ANSWER
            prejudice = self._prejudice(trace_id, state.approach)
            while left:
                length = self._thought_tokens(random, left)
                left -= length
                z = state.z + random.gauss(0.0, self.spread * math.sqrt(length / self.lengths.median))
                state = State(state.approach, z, last=not left)
                yield score_token(_NORMAL.cdf(z + prejudice + random.gauss(0.0, self.noise)))
                yield state.token
                yield from [FILLER] * (length - _SHORTEST)
                yield BLANK
        answer = RIGHT if state.z > 0 else _WRONG[state.approach % len(_WRONG)]
        yield from text_tokens(f"\\boxed{{{answer}}}")
        yield END

    def confidence(self, trace_id: str, position: int, score: float) -> float:
        """Of one token, from the score of its thought."""
        noise = self._noises[(_number(trace_id) + position) * _KNUTH % _NOISES]
        return max(0.0, self.surest - self.doubt * (1 - score) + noise)

    def embedding(self, text: str) -> array[float]:
        """Vector of a thought: its approach's direction, and more or less of one of its own."""
        found = re.search(r"<(\d+):", text)
        approach, own = _direction(f"approach {found[1] if found else ''}"), _direction(text)
        share = self.vagueness * Random(text).random()
        vector = [a + share * b for a, b in zip(approach, own, strict=True)]
        norm = math.hypot(*vector)
        return array("f", (value / norm for value in vector))

    def _state(self, tokens: Sequence[int]) -> State | None:
        """That of the last thought."""
        states = (State.of(token) for token in reversed(tokens))
        return next((state for state in states if state is not None), None)

    def _first_state(self, trace_id: str, random: Random) -> State:
        """That in which a root begins."""
        z = Random(f"{self.seed} {_tree_of(trace_id)}").gauss(self.ease, self.difficulty)
        weights = [(2 / 3) ** n for n in range(self.approaches)]
        return State(random.choices(range(self.approaches), weights)[0], z)

    def _prejudice(self, trace_id: str, approach: int) -> float:
        return Random(f"{self.seed} {_tree_of(trace_id)} {approach}").gauss(0.0, self.prejudice)

    def _rest_of_thought(self, tokens: Sequence[int], random: Random, state: State) -> Iterator[int]:
        """Of one that the tokens break off inside."""
        before = tokens[-1]
        if score_of(before) is not None:
            yield state.token
        elif before != FILLER and State.of(before) is None:
            return
        yield from [FILLER] * random.randrange(self.thought)
        yield BLANK

    def _thought_tokens(self, random: Random, left: int) -> int:
        """Of the next thought; what would be left after it is room for another, or nothing."""
        length = max(_SHORTEST, random.randint(self.thought // 2, self.thought + self.thought // 2))
        return left if left - length < _SHORTEST else length

    @cached_property
    def _noises(self) -> list[float]:
        random = Random(f"{self.seed} confidence")
        return [random.gauss(0.0, self.flicker) for _ in range(_NOISES)]


def _tree_of(trace_id: str) -> str:
    return trace_id.rpartition("/")[0]


@lru_cache(maxsize=65_536)
def _number(text: str) -> int:
    """One that is the same in every process."""
    return zlib.crc32(text.encode())


@lru_cache(maxsize=65_536)
def _direction(text: str) -> tuple[float, ...]:
    random = Random(text)
    drawn = [random.gauss(0.0, 1.0) for _ in range(16)]
    norm = math.hypot(*drawn)
    return tuple(value / norm for value in drawn)
