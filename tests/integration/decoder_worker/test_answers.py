"""From finished traces to the answer: what may take long is bounded."""

from __future__ import annotations

import time

import pytest

from decoder_worker import verdict
from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.engine.scripted import ScriptedConfig
from tests.integration.decoder_worker.harness import RecordingEngine, drawn, working
from thoughtbeam.v1 import reasoning_pb2 as pb
from tree_store.model import TreeState

TRACES = 24


async def test_a_pattern_that_explodes_on_every_trace_holds_the_vote_no_longer_than_its_budget(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict, "REGEX_SECONDS", 0.5)
    long = "a" * 60 + "!"
    source = drawn(1, thoughts=lambda random: 1, answer=lambda random, quality: long)
    engine = RecordingEngine(source, ScriptedConfig(slots=TRACES))
    # given a second for each trace, so that all together would take far longer than the budget
    equivalence = Equivalence(seconds=1.0)
    async with working(redis_url, engine, equivalence=equivalence) as bench:
        began = time.monotonic()
        record = await bench.solve(
            "self_consistency",
            parameters={"N": TRACES},
            answer_mode=pb.ANSWER_MODE_REGEX,
            answer_regex="((a+)+)+$",
        )
        took = time.monotonic() - began
    assert record.state is TreeState.SUCCEEDED
    assert record.outcome is not None
    assert record.outcome.answer is None
    assert took < TRACES * 1.0
