"""The tap turns what vLLM gives into step batches, and lets nothing else through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from decoder_worker.engine.base import EngineError, FinishReason, StepBatch
from decoder_worker.engine.boundaries import BLANK_LINE, BLANK_LINE_BEFORE_THINK_END, Vocabulary
from decoder_worker.engine.vllm_tap import HANDOVER, RunningTrace, Tap

TEXTS = ["<end>", "a", "\n\n", "</think>"]
END, A, BLANK, THINK_END = range(4)
ROW = b"\0\0\x80?"


class OutputProcessor:
    """The part of vLLM's output processor that the tap touches."""

    def __init__(self) -> None:
        self.request_states: dict[str, Any] = {}
        self.aborted: list[str] = []
        self.seen: list[Any] = []

    def process_outputs(self, outputs: Sequence[Any]) -> Any:
        self.seen.extend(outputs)
        return SimpleNamespace(reqs_to_abort=[])

    def abort_requests(self, requests: Iterable[str], internal: bool) -> list[str]:
        assert internal
        self.aborted.extend(requests)
        return self.aborted


def output(
    request: str,
    tokens: list[int],
    *,
    row: int | None = None,
    step: int | None = None,
    finish: int | None = None,
    cached: int | None = None,
    confidence: float | None = None,
) -> Any:
    handed: dict[str, Any] = {} if step is None else {"step": step, "kv_use": step / 10}
    if row is not None:
        handed["row"] = (row, "float32", ROW)
    if confidence is not None:
        handed["confidence"] = confidence
    return SimpleNamespace(
        request_id=request,
        new_token_ids=tokens,
        finish_reason=finish,
        prefill_stats=None if cached is None else SimpleNamespace(num_cached_tokens=cached),
        kv_transfer_params={HANDOVER: handed} if handed else None,
    )


class Bench:
    """A tap with one trace `t` that was added with these tokens."""

    def __init__(self, tokens: Sequence[int] = (A, A), rule: str = BLANK_LINE, **options: Any) -> None:
        self.ended: list[RunningTrace] = []
        self.processor = OutputProcessor()
        self.tap = Tap(self.processor, self.ended.append)
        self.trace = RunningTrace(
            trace_id="t",
            request="t#1",
            start=len(tokens),
            first_row=tokens[-1] == BLANK,
            span=Vocabulary(rule, TEXTS).span(tokens),
            stop_at_boundary=options.get("stop_at_boundary", False),
        )
        self.tap.expect(self.trace)
        self.tap.bind("t#1", "t#1-0")

    def give(self, *outputs: Any) -> Any:
        return self.processor.process_outputs(list(outputs))

    def taken(self) -> list[StepBatch]:
        return list(iter(self.tap.take, None))


def test_a_step_becomes_a_batch_and_vllm_sees_a_clean_output() -> None:
    bench = Bench()
    bench.give(output("t#1-0", [A], row=1, step=3, cached=1), output("stranger", [A]))
    assert bench.tap.arrived.is_set()
    (batch,) = bench.taken()
    assert (batch.step, batch.kv_use) == (3, 0.3)
    (found,) = batch.outputs
    # the first row is not that of a boundary, so nobody asked for it
    assert (found.trace_id, found.tokens, found.row, found.cached_tokens) == ("t", [A], None, 1)
    assert [o.kv_transfer_params for o in bench.processor.seen] == [None, None]


def test_rows_of_boundaries_are_delivered_with_the_token_after_them() -> None:
    bench = Bench(tokens=(A, BLANK))
    bench.give(output("t#1-0", [A], row=1, step=1))
    bench.give(output("t#1-0", [BLANK], step=2))
    bench.give(output("t#1-0", [END], row=3, step=3, finish=0))
    first, second, third = (batch.outputs[0] for batch in bench.taken())
    assert first.row is not None
    assert (first.row.position, first.row.dtype, first.row.data) == (1, "float32", ROW)
    assert second.row is None
    assert third.row is not None
    assert third.row.position == 3
    assert third.finish is FinishReason.STOP
    assert bench.ended == [bench.trace]


def test_a_boundary_counts_until_the_thinking_ends_even_if_it_ends_with_the_next_token() -> None:
    bench = Bench(rule=BLANK_LINE_BEFORE_THINK_END)
    bench.give(output("t#1-0", [BLANK], step=1))
    bench.give(output("t#1-0", [THINK_END], row=2, step=2))
    bench.give(output("t#1-0", [BLANK], step=3))
    bench.give(output("t#1-0", [A], row=4, step=4))
    assert [o.row is not None for batch in bench.taken() for o in batch.outputs] == [
        False,
        True,
        False,
        False,
    ]


def test_stop_at_boundary_drops_the_surplus_and_ends_the_request() -> None:
    bench = Bench(tokens=(A, BLANK), stop_at_boundary=True)
    bench.give(output("t#1-0", [A], row=1, step=1))
    bench.give(output("t#1-0", [BLANK], step=2))
    processed = bench.give(output("t#1-0", [END], row=3, step=3, finish=0))
    bench.give(output("t#1-0", [A], step=4))
    assert processed.reqs_to_abort == ["t#1-0"]
    given = [o for batch in bench.taken() for o in batch.outputs]
    assert [o.tokens for o in given] == [[A], [BLANK], ()]
    assert [o.finish for o in given] == [None, None, FinishReason.BOUNDARY]
    assert given[2].row is not None


def test_what_has_arrived_of_a_dropped_trace_is_not_delivered() -> None:
    bench = Bench()
    bench.give(output("t#1-0", [A], step=1))
    bench.tap.drop(bench.trace)
    bench.give(output("t#1-0", [A], step=2))
    assert [list(batch.outputs) for batch in bench.taken()] == [[], []]
    assert bench.tap.bind("t#1", "t#1-0") is None


def test_an_output_that_overtakes_its_add_is_not_lost() -> None:
    bench = Bench()
    early = RunningTrace("u", "u#2", 1, False, Vocabulary(BLANK_LINE, TEXTS).span([A]), False)
    bench.tap.expect(early)
    bench.processor.request_states["u#2-x"] = SimpleNamespace(external_req_id="u#2")
    bench.give(output("u#2-x", [A], step=1))
    (batch,) = bench.taken()
    assert [o.trace_id for o in batch.outputs] == ["u"]
    assert early.internal == "u#2-x"


def test_outputs_without_a_step_belong_to_the_last_one() -> None:
    bench = Bench()
    bench.give(output("t#1-0", [A], step=7))
    bench.give(output("t#1-0", [A]))
    assert [(batch.step, batch.kv_use) for batch in bench.taken()] == [(7, 0.7), (7, 0.7)]


def test_a_request_that_vllm_gives_up_is_an_error_that_is_kept() -> None:
    bench = Bench()
    with pytest.raises(EngineError, match="vLLM ended trace t: 3") as caught:
        bench.give(output("t#1-0", [], step=1, finish=3))
    assert caught.value.fatal
    assert bench.tap.failure is caught.value


def test_a_confidence_comes_with_its_token_and_not_with_one_that_is_dropped() -> None:
    bench = Bench(stop_at_boundary=True)
    bench.give(output("t#1-0", [A], step=1, confidence=7.5))
    bench.give(output("t#1-0", [BLANK], step=2, confidence=8.5))
    bench.give(output("t#1-0", [A], row=3, step=3, confidence=9.5))
    given = [o for batch in bench.taken() for o in batch.outputs]
    assert [list(o.confidences) for o in given] == [[7.5], [8.5], []]
    other = Bench()
    other.give(output("t#1-0", [END], step=1, confidence=6.5, finish=0))
    assert [o.confidences for o in other.taken()[0].outputs] == [(6.5,)]
