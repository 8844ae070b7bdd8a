"""The engine on real vLLM: rows, branches, resumes, preemption, stops and aborts."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from decoder_worker.engine.base import EngineError, FinishReason, SamplingSpec
from decoder_worker.engine.vllm_engine import VllmEngine
from tests.integration.engine.recorder import Recorder
from tests.integration.engine.reference import Reference


def own_prompt(prompt: list[int], number: int) -> list[int]:
    """A prompt that shares no KV block with those of other numbers."""
    return [*prompt[:2], 70 + number, *prompt[2:]]


@pytest.mark.parametrize("batch", [1, 32])
async def test_rows_of_roots_are_those_of_transformers(
    recorder: Recorder, reference: Reference, prompt: list[int], batch: int
) -> None:
    traces = [await recorder.add(f"root/{n}", prompt, max_tokens=200) for n in range(batch)]
    await recorder.finished(*traces)
    assert sum(reference.check(trace) for trace in traces) >= 2 * batch


async def test_a_branch_shares_its_parents_blocks_and_recomputes_at_most_one(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    size = vllm_engine.info.block_size
    parents = [await recorder.add(f"parent/{n}", own_prompt(prompt, n), max_tokens=400) for n in range(4)]
    await recorder.until(lambda: all(len(parent.rows) >= 3 for parent in parents))

    branches = []
    for parent in parents:
        at = parent.rows[-1].position + 1
        branches.append(await recorder.add(f"{parent.trace_id}.1", parent.tokens[:at], max_tokens=150))
    await recorder.until(lambda: all(branch.cached is not None for branch in branches))
    blocks = await vllm_engine.block_ids()
    for parent, branch in zip(parents, branches, strict=True):
        assert branch.cached is not None
        assert branch.start - branch.cached <= size
        shared = (branch.start - 1) // size
        assert shared >= 3
        assert blocks[branch.trace_id][:shared] == blocks[parent.trace_id][:shared]
        assert not set(blocks[branch.trace_id][shared:]) & set(blocks[parent.trace_id][shared:])

    await recorder.finished(*parents, *branches)
    assert all(reference.check(branch) for branch in branches)
    assert all(reference.check(parent) for parent in parents)
    # the first row of a branch is its parent's boundary row
    for parent, branch in zip(parents, branches, strict=True):
        at = branch.start - 1
        assert branch.rows[0].position == at
        assert np.abs(branch.row_at(at) - parent.row_at(at)).max() < 1e-4


async def test_a_resumed_trace_goes_on_with_right_rows(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    first = await recorder.add("evicted", prompt)
    await recorder.until(lambda: len(first.rows) >= 2)
    await vllm_engine.abort("evicted")

    # resumed inside a thought, and at a boundary whose row is asked for again
    inside = await recorder.add("inside", first.tokens, max_tokens=100)
    at_boundary = await recorder.add("boundary", first.tokens[: first.rows[-1].position + 1], max_tokens=100)
    await recorder.finished(inside, at_boundary)
    assert reference.check(inside) >= 1
    assert reference.check(at_boundary) >= 1
    assert at_boundary.rows[0].position == at_boundary.start - 1


async def test_after_preemption_rows_are_right_and_the_least_important_went_first(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    before = len(await vllm_engine.preemptions())
    traces = [await recorder.add(f"crowd/{n}", own_prompt(prompt, n)) for n in range(32)]
    await recorder.until(lambda: all(trace.cached is not None for trace in traces))
    await vllm_engine.set_priorities({f"crowd/{n}": 31 - n for n in range(32)} | {"unknown": 1})
    await recorder.finished(*traces)

    preempted = (await vllm_engine.preemptions())[before:]
    assert len(preempted) >= 5
    assert {p.trace_id.split("/")[0] for p in preempted} == {"crowd"}
    ranked = [p for p in preempted if p.priority or any(p.others)]
    assert len(ranked) >= 5
    assert all(p.priority >= max(p.others, default=0) for p in ranked)
    assert max(batch.kv_use for batch in recorder.steps) > 0.9
    assert sum(reference.check(trace) for trace in traces) >= 100
    victims = {p.trace_id for p in ranked}
    assert any(reference.check(trace) for trace in traces if trace.trace_id in victims)


async def test_eight_traces_of_one_request_have_eight_texts(
    recorder: Recorder, vllm_engine: VllmEngine
) -> None:
    steps = " ".join(
        f"{letter}) *{factor}" for letter, factor in zip("abcdefghijkl", range(37, 97, 5), strict=True)
    )
    question = f"Start with 871 and work modulo 1000. {steps}. Report the value after l."
    prompt = vllm_engine.tokenizer.encode_chat([{"role": "user", "content": question}])
    traces = [await recorder.add(f"same/{n}", prompt, max_tokens=600) for n in range(8)]
    await recorder.finished(*traces)
    assert len({vllm_engine.tokenizer.decode(trace.new) for trace in traces}) == 8


async def test_a_trace_stops_at_its_boundary_and_keeps_nothing_beyond_it(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    trace = await recorder.add("held", prompt, stop_at_boundary=True)
    await recorder.finished(trace)
    last = len(trace.tokens) - 1
    assert trace.finish is FinishReason.BOUNDARY
    assert reference.boundaries(trace.tokens[trace.start :]) == {last - trace.start}
    assert np.abs(trace.row_at(last) - reference.hidden(trace.tokens)[last]).max() < 1e-4
    # the engine has let go of it, so that it can go on under its own name; its own boundary does not stop it
    await recorder.until(lambda: True)
    again = await recorder.add("held", trace.tokens, stop_at_boundary=True)
    await recorder.finished(again)
    assert again.finish is FinishReason.BOUNDARY
    assert [row.position for row in again.rows] == [last, len(again.tokens) - 1]
    assert await vllm_engine.block_ids() == {}


async def test_an_aborted_trace_is_silent_also_when_its_name_is_used_again(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    others = [await recorder.add(f"other/{n}", prompt, max_tokens=250) for n in range(4)]
    for length in range(5, 10):
        trace = await recorder.add("name", prompt, max_tokens=250)
        await recorder.until(lambda trace=trace, length=length: len(trace.new) >= length)
        await vllm_engine.abort("name")
        await vllm_engine.abort("name")
        kept = list(trace.tokens)
        steps = len(recorder.steps)
        await recorder.until(lambda steps=steps: len(recorder.steps) >= steps + 3)
        assert trace.tokens == kept
        assert "name" not in await vllm_engine.block_ids()
    # no step between: outputs on their way belong to the old request
    trace = await recorder.add("name", prompt, max_tokens=250)
    await recorder.until(lambda: len(trace.new) >= 3)
    await vllm_engine.abort("name")
    trace = await recorder.add("name", prompt, max_tokens=250)
    await recorder.finished(trace, *others)
    assert all(reference.check(t) for t in (trace, *others))


async def test_confidences_are_those_of_transformers_logits(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    roots = [
        await recorder.add(f"sure/{n}", own_prompt(prompt, n), max_tokens=300, confidence=n % 2 == 0)
        for n in range(8)
    ]
    await recorder.until(lambda: all(len(root.rows) >= 3 for root in roots))
    at = [root.rows[-1].position + 1 for root in roots]
    branches = [
        await recorder.add(f"{root.trace_id}.1", root.tokens[:end], max_tokens=100, confidence=True)
        for root, end in zip(roots, at, strict=True)
    ]
    await recorder.until(lambda: all(len(root.new) >= 150 or root.finish for root in roots))
    evicted = [root for root in roots if root.finish is None][:2]
    for root in evicted:
        await vllm_engine.abort(root.trace_id)
    resumed = [
        await recorder.add(f"{root.trace_id}+", root.tokens, max_tokens=80, confidence=True)
        for root in evicted
    ]
    await recorder.finished(*branches, *resumed, *(root for root in roots if root not in evicted))

    asked = [*roots[::2], *branches, *resumed]
    means = [reference.check_confidences(trace) for trace in asked]
    assert resumed
    assert 2 < min(means) < max(means) < 40
    assert all(root.confidences == [] for root in roots[1::2])
    assert all(reference.check(trace) for trace in branches)  # rows go on as ever


async def test_confidences_are_right_after_preemption_and_up_to_a_boundary_that_stops(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    before = len(await vllm_engine.preemptions())
    crowd = [await recorder.add(f"pressed/{n}", own_prompt(prompt, n), confidence=True) for n in range(32)]
    await recorder.finished(*crowd)
    victims = {p.trace_id for p in (await vllm_engine.preemptions())[before:]}
    assert len(victims) >= 3
    assert all(reference.check_confidences(trace) for trace in crowd)
    held = await recorder.add("held", prompt, stop_at_boundary=True, confidence=True)
    await recorder.finished(held)
    assert held.finish is FinishReason.BOUNDARY
    assert reference.check_confidences(held)


async def test_a_trace_ends_by_its_length_limit(recorder: Recorder, prompt: list[int]) -> None:
    one = await recorder.add("one", prompt, max_tokens=1)
    twenty = await recorder.add("twenty", prompt, max_tokens=20)
    await recorder.finished(one, twenty)
    assert (len(one.new), len(twenty.new)) == (1, 20)
    assert one.finish is twenty.finish is FinishReason.LENGTH


async def test_a_trace_ends_where_the_context_does(
    recorder: Recorder, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    limit = vllm_engine.info.max_context
    filler = [*prompt, *prompt[4:60] * 20][: limit - 3]
    trace = await recorder.add("full", filler, max_tokens=50)
    await recorder.finished(trace)
    assert trace.finish is FinishReason.STOP or len(trace.tokens) == limit


async def test_what_cannot_be_run_is_refused_by_name(prompt: list[int], vllm_engine: VllmEngine) -> None:
    spec = SamplingSpec(max_tokens=50)
    with pytest.raises(EngineError, match=r"has 1024 tokens, must have 1 to 1023"):
        await vllm_engine.add("long", [5] * 1024, spec)
    with pytest.raises(EngineError, match="has 0 tokens, must have 1 to 1023"):
        await vllm_engine.add("empty", [], spec)
    with pytest.raises(EngineError, match="max_tokens is 0, must be at least 1"):
        await vllm_engine.add("zero", prompt, SamplingSpec(max_tokens=0))
    with pytest.raises(EngineError, match="vLLM refused trace hot: "):
        await vllm_engine.add("hot", prompt, SamplingSpec(temperature=-1.0))
    await vllm_engine.add("twice", prompt, spec)
    with pytest.raises(EngineError, match="trace twice is running already") as refused:
        await vllm_engine.add("twice", prompt, spec)
    assert not refused.value.fatal
    await vllm_engine.abort("twice")


async def test_a_cancelled_add_leaves_nothing(
    recorder: Recorder, prompt: list[int], vllm_engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_request = vllm_engine._llm.add_request
    handed_over = asyncio.Event()

    async def slow(*args: object) -> object:
        collector = await add_request(*args)
        handed_over.set()
        await asyncio.sleep(60)
        return collector

    with monkeypatch.context() as patch:
        patch.setattr(vllm_engine._llm, "add_request", slow)
        adding = asyncio.create_task(vllm_engine.add("gone", prompt, SamplingSpec(max_tokens=900)))
        await handed_over.wait()
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
    trace = await recorder.add("gone", prompt, max_tokens=20)
    await recorder.finished(trace)
    assert await vllm_engine.block_ids() == {}


async def test_capture_can_be_switched_off_while_nothing_runs(
    recorder: Recorder, reference: Reference, prompt: list[int], vllm_engine: VllmEngine
) -> None:
    await vllm_engine.set_capture(False)
    trace = await recorder.add("blind", prompt, max_tokens=100)
    with pytest.raises(EngineError, match="capture cannot be switched while 1 traces run"):
        await vllm_engine.set_capture(True)
    await recorder.finished(trace)
    assert reference.boundaries(trace.tokens)
    assert trace.rows == []
    await vllm_engine.set_capture(True)
    trace = await recorder.add("seeing", prompt, max_tokens=100)
    await recorder.finished(trace)
    assert reference.check(trace)


async def test_steps_are_numbered_and_show_kv_use(recorder: Recorder, prompt: list[int]) -> None:
    traces = [await recorder.add(f"step/{n}", prompt, max_tokens=40) for n in range(3)]
    await recorder.finished(*traces)
    numbers = [batch.step for batch in recorder.steps]
    assert numbers == sorted(set(numbers))
    assert all(0 <= batch.kv_use <= 1 for batch in recorder.steps)
    assert any(batch.kv_use > 0 for batch in recorder.steps)


def test_the_engine_describes_itself(vllm_engine: VllmEngine) -> None:
    info = vllm_engine.info
    assert (info.model, info.hidden_size, info.slots, info.max_context) == ("tiny_reasoner", 128, 32, 1024)
    assert (info.kv_blocks, info.block_size) == (128, 32)
    assert info.boundary_rule == "blank_line"
    assert info.default_sampling.temperature == 1.0
    assert info.default_sampling.max_tokens < info.max_context
