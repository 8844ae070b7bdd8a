"""A decoder worker without a model: `python -m …operations.scripted_decoder GATE ANSWER FLAGS`

It is `python -m decoder_worker` but for its engine, which is there once the file GATE is, and whose traces
all answer what is in the file ANSWER.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from decoder_worker.engine.base import Engine
from decoder_worker.engine.scripted import ScriptedEngine
from decoder_worker.engine.scripted_traces import END, text_tokens, write_thought
from decoder_worker.engine.vllm_config import VllmConfig
from decoder_worker.main import parse, serve
from thoughtbeam.runtime.log import setup_logging
from thoughtbeam.runtime.signals import ending_at_once


@dataclass(frozen=True, slots=True)
class Answering:
    """A few thoughts, each of which says the answer, and then the answer."""

    answer: str

    def continuation(self, trace_id: str, tokens: Sequence[int]) -> Iterator[int]:
        for score in (0.25, 0.75, 0.5):
            yield from write_thought(8, score)[:-1]
            yield from text_tokens(f" so {self.answer}?\n\n")
        yield from text_tokens(f"\\boxed{{{self.answer}}}")
        yield END


def main(gate: Path, answer: Path, flags: Sequence[str]) -> None:
    def wait() -> ScriptedEngine:
        while not gate.exists():
            time.sleep(0.02)
        return ScriptedEngine(Answering(answer.read_text()))

    async def start(config: VllmConfig) -> Engine:
        return await asyncio.to_thread(wait)

    config = parse(flags)
    setup_logging(config.log_level, config.log_format)
    with ending_at_once():
        asyncio.run(serve(config, start))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
