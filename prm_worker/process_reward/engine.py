"""One vLLM pooling engine: prompts in, the scores at their separators out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from prm_worker.process_reward.launch import EngineConfig, EngineStartError, Launched, launch
from prm_worker.process_reward.prompt import Prompt
from prm_worker.process_reward.room import Room
from prm_worker.scorers.base import Float32Array
from thoughtbeam.runtime.vllm_life import reason_of

_CLASSES = 2  # bad, good


class EngineDiedError(Exception):
    """The engine has ended; another one may score."""


@dataclass(slots=True)
class Usage:
    """Of an engine so far: tokens of the prompts that it was given, and those of them that it computed. The
    others were in its prefix cache."""

    tokens: int = 0
    computed: int = 0


class PoolingEngine:
    """An engine that runs; made by `start`.

    max_context: longest prompt in tokens. digest: of the model. died: set once the engine has ended, by
    itself or by `close`.
    """

    def __init__(self, launched: Launched) -> None:
        self.max_context = launched.max_context
        self.digest = launched.digest
        self.usage = Usage()
        self.died = asyncio.Event()
        self._launched = launched
        self._room = Room(launched.blocks)
        self._numbers = count()

    @classmethod
    async def start(cls, config: EngineConfig) -> PoolingEngine:
        """Loads the model; the event loop goes on meanwhile. A cancelled start leaves no process behind.

        Raises EngineStartError.
        """
        engine = cls(await launch(config))
        try:
            await engine._begin(config)
        except BaseException:
            await engine.close()
            raise
        return engine

    async def score(self, prompt: Prompt) -> Float32Array:
        """Scores of the wanted steps, float32 [prompt.wanted], each in [0, 1]; NaN for those that do not fit
        into the context. The prompts of concurrent calls are computed together.

        Raises EngineDiedError.
        """
        scores = np.full(prompt.wanted, np.nan, dtype=np.float32)
        if prompt.places:
            async with self._room.taken(math.ceil(len(prompt.tokens) / self._launched.block_size)):
                scores[: len(prompt.places)] = await self._scores(prompt)
        return scores

    async def close(self) -> None:
        """Ends the engine and its processes; calls that still run get EngineDiedError."""
        await asyncio.to_thread(self._launched.shut_down)

    async def _scores(self, prompt: Prompt) -> Float32Array:
        """A token from the prefix cache has no values. What comes back are those of the tokens behind, so a
        score that is wanted of a token in the cache (a call repeated, a twin of another trace) has the prompt
        computed again."""
        values = await self._values(prompt.tokens, reuse=True)
        cached = len(prompt.tokens) - len(values)
        if prompt.places[0] < cached:
            values = await self._values(prompt.tokens, reuse=False)
            cached = 0
        bad, good = values[np.asarray(prompt.places) - cached].T
        with np.errstate(over="ignore"):  # of a score that is 0
            scores: Float32Array = 1 / (1 + np.exp(bad - good))
        return scores

    async def _values(self, tokens: Sequence[int], *, reuse: bool) -> Float32Array:
        """Values of the classes, float32 [tokens, classes], of the last tokens: those not cached before."""
        from vllm import PoolingParams
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        parameters = PoolingParams(
            task="token_classify", use_activation=False, skip_reading_prefix_cache=not reuse
        )
        request = str(next(self._numbers))
        values = np.empty((0, _CLASSES), dtype=np.float32)
        try:
            async for output in self._launched.llm.encode(tokens_input(list(tokens)), parameters, request):
                values = output.outputs.data.float().numpy()
        except EngineDeadError as error:
            raise EngineDiedError from error
        self.usage.tokens += len(tokens)
        self.usage.computed += len(values)
        return values

    async def _begin(self, config: EngineConfig) -> None:
        """Watches over the engine from now on, and sees that it scores. Raises EngineStartError."""
        llm = self._launched.llm
        try:
            # vLLM's own task for outputs ends when its engine core does, and for no other reason.
            llm._run_output_handler()
            llm.output_handler.add_done_callback(lambda _: self.died.set())
            await self._check(config)
        except EngineStartError:
            raise
        except EngineDiedError as error:
            raise EngineStartError(f"the engine of model {config.model} died as it started") from error
        except Exception as error:
            raise EngineStartError(
                f"the engine of model {config.model} cannot score: {reason_of(error)}"
            ) from error

    async def _check(self, config: EngineConfig) -> None:
        """Computes a prompt, so that the first call finds everything loaded."""
        values = await self._values([0], reuse=False)
        if values.shape != (1, _CLASSES):
            raise EngineStartError(
                f"model {config.model} gives {values.shape[-1]} values per token, must give {_CLASSES}"
            )
