"""The scripted engine keeps the seam's promises, under slots, KV and priorities."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from decoder_worker.engine.base import EngineError, FinishReason, HiddenRow, SamplingSpec, TraceOutput
from decoder_worker.engine.scripted import ScriptedConfig, ScriptedEngine, StepTime
from decoder_worker.engine.scripted_traces import (
    BLANK,
    END,
    Drawn,
    Replay,
    ScriptedTokenizer,
    score_in,
    text_tokens,
    write_thought,
    write_trace,
)

PROMPT = text_tokens("user: how much?\n")
LONG = SamplingSpec(max_tokens=4000)


@dataclass
class Seen:
    tokens: list[int] = field(default_factory=list)
    rows: list[HiddenRow] = field(default_factory=list)
    finish: FinishReason | None = None
    cached: list[int] = field(default_factory=list)


def play(engine: ScriptedEngine, steps: int = 10_000) -> dict[str, Seen]:
    """Steps until nothing is left to run."""
    seen: dict[str, Seen] = {}
    for _ in range(steps):
        outputs = engine.step().outputs
        for output in outputs:
            note(seen.setdefault(output.trace_id, Seen()), output)
        if not outputs and not engine.resident():
            break
    return seen


def note(seen: Seen, output: TraceOutput) -> None:
    assert seen.finish is None
    seen.tokens.extend(output.tokens)
    if output.row is not None:
        seen.rows.append(output.row)
    if output.cached_tokens is not None:
        seen.cached.append(output.cached_tokens)
    seen.finish = output.finish


def scores(rows: Sequence[HiddenRow]) -> list[float]:
    return [round(score_in(row), 3) for row in rows]


async def test_a_replayed_trace_gives_its_tokens_and_the_scores_of_its_thoughts() -> None:
    script = write_trace([(5, 0.25), (7, 0.75)], answer="29")
    engine = ScriptedEngine(Replay({"t": script}))
    await engine.add("t", PROMPT, LONG)
    seen = play(engine)["t"]
    assert seen.tokens == script
    assert seen.finish is FinishReason.STOP
    assert scores(seen.rows) == [0.25, 0.75]
    assert [row.position for row in seen.rows] == [len(PROMPT) + 4, len(PROMPT) + 11]
    assert seen.cached == [0]
    assert engine.tokenizer.decode(seen.tokens) == (
        "[0.250] so so so\n\n[0.750] so so so so so\n\n\\boxed{29}"
    )
    assert engine.kv_use == 0


async def test_a_boundarys_row_comes_with_the_token_after_it_and_no_number_is_possible() -> None:
    engine = ScriptedEngine(Replay({"t": [*write_thought(2, math.nan), END]}))
    await engine.add("t", PROMPT, LONG)
    outputs = [engine.step().outputs[0] for _ in range(3)]
    assert [output.tokens[0] for output in outputs][1:] == [BLANK, END]
    assert [output.row is not None for output in outputs] == [False, False, True]
    assert outputs[2].row is not None
    assert math.isnan(score_in(outputs[2].row))


async def test_resumes_and_branches_go_on_from_their_tokens() -> None:
    script = write_trace([(6, 0.5)] * 3, answer="1")
    engine = ScriptedEngine(Replay({"t": script, "t.1": write_trace([(4, 0.9)], answer="2")}))
    await engine.add("t", PROMPT, LONG)
    for _ in range(13):
        engine.step()
    await engine.abort("t")
    await engine.add("t", [*PROMPT, *script[:12]], LONG)
    await engine.add("t.1", [*PROMPT, *script[:6]], LONG)
    seen = play(engine)
    assert seen["t"].tokens == script[12:]
    # where the last token given is a boundary its row comes again
    assert [row.position for row in seen["t"].rows] == [len(PROMPT) + 11, len(PROMPT) + 17]
    assert scores(seen["t.1"].rows) == [0.5, 0.9]
    assert seen["t.1"].cached == [(len(PROMPT) + 5) // 16 * 16]


async def test_no_more_traces_run_than_there_are_slots_and_they_come_in_order() -> None:
    script = write_trace([(4, 0.5)])
    names = [f"t{n}" for n in range(5)]
    engine = ScriptedEngine(Replay(dict.fromkeys(names, script)), ScriptedConfig(slots=2))
    for name in names:
        await engine.add(name, PROMPT, LONG)
    order: list[str] = []
    while len(order) < 5:
        outputs = engine.step().outputs
        assert len(engine.resident()) <= 2
        order += [output.trace_id for output in outputs if output.finish]
    assert order == names


async def test_the_least_important_trace_is_preempted_and_loses_nothing() -> None:
    names = [f"t{n}" for n in range(4)]
    prompts = {name: text_tokens(name) for name in names}
    script = write_trace([(30, 0.5)] * 4, answer="29")
    engine = ScriptedEngine(
        Replay(dict.fromkeys(names, script)), ScriptedConfig(kv_blocks=20, block_size=16, max_context=320)
    )
    for name in names:
        await engine.add(name, prompts[name], LONG)
    await engine.set_priorities({"t0": 9, "t1": 0, "t2": 1, "t3": 2, "unknown": 5})
    seen = play(engine)
    assert engine.preempted[:2] == ["t0", "t3"]
    assert "t1" not in engine.preempted
    for name in names:
        assert seen[name].tokens == script
        assert scores(seen[name].rows) == [0.5] * 4
        assert seen[name].cached == [0]


async def test_kv_in_use_counts_shared_blocks_once() -> None:
    script = write_trace([(32, 0.5)] * 2)
    engine = ScriptedEngine(Replay({"t": script, "t.1": script, "u": script}), ScriptedConfig(kv_blocks=400))
    prompt = [*PROMPT, *PROMPT]  # 32 tokens, 2 blocks
    await engine.add("t", prompt, LONG)
    for _ in range(33):
        engine.step()
    assert round(engine.kv_use * 400) == 5
    await engine.add("t.1", [*prompt, *script[:32]], LONG)
    assert round(engine.step().kv_use * 400) == 6  # 4 full ones, shared, and a partial one each
    await engine.add("u", text_tokens("u"), LONG)
    assert round(engine.step().kv_use * 400) == 7


async def test_a_trace_stops_at_its_boundary() -> None:
    script = write_trace([(5, 0.1), (5, 0.2)])
    engine = ScriptedEngine(Replay({"t": script}))
    await engine.add("t", PROMPT, LONG, stop_at_boundary=True)
    first = play(engine)["t"]
    assert (first.tokens, first.finish) == (script[:5], FinishReason.BOUNDARY)
    assert scores(first.rows) == [0.1]
    await engine.add("t", [*PROMPT, *script[:5]], LONG, stop_at_boundary=True)
    second = play(engine)["t"]
    assert (second.tokens, second.finish) == (script[5:10], FinishReason.BOUNDARY)
    assert scores(second.rows) == [0.1, 0.2]


async def test_length_limits_end_a_trace() -> None:
    script = write_trace([(500, 0.5)])
    engine = ScriptedEngine(Replay({"a": script, "b": script}), ScriptedConfig(max_context=100))
    await engine.add("a", PROMPT, SamplingSpec(max_tokens=7))
    await engine.add("b", PROMPT, LONG)
    seen = play(engine)
    assert (len(seen["a"].tokens), seen["a"].finish) == (7, FinishReason.LENGTH)
    assert (len(seen["b"].tokens) + len(PROMPT), seen["b"].finish) == (100, FinishReason.LENGTH)


async def test_time_passes_by_the_step_time_model() -> None:
    config = ScriptedConfig(step_time=StepTime(base=1.0, per_trace=0.1, per_prefilled=0.01))
    engine = ScriptedEngine(Replay(dict.fromkeys("ab", write_trace([(9, 0.5)]))), config)
    await engine.add("a", PROMPT, LONG)
    assert engine.step().step == 1
    assert engine.now == pytest.approx(1 + 0.1 + 0.01 * len(PROMPT))
    await engine.add("b", [*PROMPT, 2], LONG)
    before = engine.now
    assert engine.step().step == 2
    assert engine.now - before == pytest.approx(1 + 0.2 + 0.01)  # the prompt's block is shared


async def test_steps_are_computed_when_they_are_asked_for() -> None:
    engine = ScriptedEngine(Replay(dict.fromkeys("ab", write_trace([(50, 0.5)]))))
    engine.pace(3)
    numbers: list[int] = []

    async def read() -> None:
        nonlocal numbers
        async for batch in engine.steps():
            numbers += [batch.step]

    reader = asyncio.create_task(read())
    await engine.add("a", PROMPT, LONG)
    await asyncio.sleep(0.01)
    assert numbers == [1, 2, 3]
    engine.pace(2)
    await asyncio.sleep(0.01)
    assert numbers == [1, 2, 3, 4, 5]
    engine.pace(None)
    await asyncio.sleep(0.05)
    assert len(numbers) == 51
    await engine.close()
    await reader
    with pytest.raises(EngineError, match="closed"):
        await engine.add("b", PROMPT, LONG)


async def test_a_dead_engine_says_so_to_everybody() -> None:
    engine = ScriptedEngine(Replay({"a": write_trace([(50, 0.5)])}))
    steps = engine.steps()
    waiting = asyncio.create_task(anext(steps))
    await asyncio.sleep(0)
    engine.die()
    with pytest.raises(EngineError, match="the engine has died") as died:
        await waiting
    assert died.value.fatal
    with pytest.raises(EngineError, match="the engine has died"):
        await engine.add("a", PROMPT, LONG)


async def test_refusals() -> None:
    engine = ScriptedEngine(Replay({"a": [END]}), ScriptedConfig(max_context=50))
    with pytest.raises(EngineError, match="has 50 tokens, must have 1 to 49"):
        await engine.add("a", [2] * 50, LONG)
    with pytest.raises(EngineError, match="no script for trace b"):
        await engine.add("b", PROMPT, LONG)
    await engine.add("a", PROMPT, LONG)
    with pytest.raises(EngineError, match="trace a is running already"):
        await engine.add("a", PROMPT, LONG)
    await engine.abort("a")
    await engine.abort("a")
    assert engine.step().outputs == []
    with pytest.raises(EngineError, match="cannot hold one trace of max_context 50"):
        ScriptedEngine(Replay({}), ScriptedConfig(max_context=50, kv_blocks=3, block_size=16))


# ---- drawn traces


async def drawn(source: Drawn, adds: dict[str, Sequence[int]]) -> dict[str, Seen]:
    engine = ScriptedEngine(source, ScriptedConfig(slots=len(adds), kv_blocks=100_000))
    for name, tokens in adds.items():
        await engine.add(name, tokens, LONG)
    return play(engine)


async def test_drawn_traces_are_the_same_for_the_same_seed() -> None:
    adds = {f"t{n}": PROMPT for n in range(8)}
    first, second, other = [await drawn(Drawn(seed), adds) for seed in (1, 1, 2)]
    assert first == second
    assert first != other
    texts = {ScriptedTokenizer().decode(seen.tokens) for seen in first.values()}
    assert len(texts) == 8
    assert all(text.endswith("}") and "\\boxed{" in text for text in texts)


async def test_a_branch_continues_its_parents_quality() -> None:
    def spread(qualities: list[float]) -> float:
        return max(qualities) - min(qualities)

    parent = [*PROMPT, *write_thought(5, 0.9)]
    adds = {f"b{n}": parent for n in range(12)}
    kept = await drawn(Drawn(correlation=1.0, noise=0.0), adds)
    assert all(set(scores(seen.rows)) == {0.9} for seen in kept.values())
    fresh = await drawn(Drawn(correlation=0.0, noise=0.0), adds)
    assert spread([scores(seen.rows)[1] for seen in fresh.values()]) > 0.3
    some = await drawn(Drawn(correlation=0.9, noise=0.0), adds)
    assert spread([scores(seen.rows)[1] for seen in some.values()]) < 0.15


async def test_a_resumed_drawn_trace_finishes_what_it_began() -> None:
    source = Drawn(thoughts=lambda random: 3, thought_tokens=lambda random: 6, answer=lambda random, q: "7")
    for cut in range(1, 28):
        whole = (await drawn(source, {"t": PROMPT}))["t"].tokens
        rest = (await drawn(source, {"t": [*PROMPT, *whole[:cut]]}))["t"].tokens
        text = ScriptedTokenizer().decode([*whole[:cut], *rest])
        assert text.count("\n\n") == 3, cut
        assert text.endswith("\\boxed{7}")


def test_lengths_follow_their_distribution() -> None:
    source = Drawn(thoughts=lambda random: random.choice([2, 5]))
    random = Random(0)
    assert {source._total(random, 0) for _ in range(50)} == {2, 5}
    assert {source._total(random, 2) for _ in range(50)} == {5}
    assert source._total(random, 9) == 9
