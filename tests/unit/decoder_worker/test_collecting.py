"""Collecting: every question's traces and branches, graded, whatever becomes of single questions."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import pytest

from decoder_worker.answers.equivalence import Equivalence
from decoder_worker.collecting.collector import Collector, CollectorConfig, Tally
from decoder_worker.collecting.main import BAD_INPUT, FAILED, INTERRUPTED, collect, main, parser
from decoder_worker.collecting.progress import line_of
from decoder_worker.collecting.questions import Question, QuestionError, read_questions
from decoder_worker.collecting.tracing import Written
from decoder_worker.engine.base import EngineError, HiddenRow, SamplingSpec, StepBatch, TraceOutput
from decoder_worker.engine.scripted import ScriptedConfig, ScriptedEngine
from decoder_worker.engine.scripted_traces import Drawn
from decoder_worker.engine.vllm_config import VllmConfig
from decoder_worker.tree_view import Trace
from thoughtbeam.runtime.scorer_dataset import ROOT, Origin, question_key
from thoughtbeam.runtime.scorer_dataset_reader import Traces, read_manifest, read_traces
from thoughtbeam.runtime.scorer_dataset_writer import DatasetWriter

QUESTIONS = [Question(question_key(f"q{n}"), f"q{n}", f"q{n}", "29") for n in range(6)]
CONFIG = CollectorConfig(
    traces=3, siblings=2, sampling=SamplingSpec(max_tokens=3000), answer_mode="integer", flush_questions=2
)


def engine(**changes: object) -> ScriptedEngine:
    return ScriptedEngine(Drawn(seed=3), ScriptedConfig(**{"slots": 5, "kv_blocks": 4096, **changes}))


def writer(path: Path, of: ScriptedEngine) -> DatasetWriter:
    info = of.info
    sampling = {"temperature": 1.0}
    return DatasetWriter(
        path,
        Origin(
            *(info.model, info.fingerprint, info.version, info.boundary_rule, info.hidden_size),
            *(sampling, CONFIG.traces, CONFIG.siblings, CONFIG.answer_mode),
        ),
    )


async def run(
    path: Path,
    of: ScriptedEngine,
    questions: Sequence[Question] = QUESTIONS,
    config: CollectorConfig = CONFIG,
) -> list[Tally]:
    """Collects; the tallies that were reported."""
    seen: list[Tally] = []
    async with Equivalence() as equivalence:
        with writer(path, of) as data:
            collector = Collector(of, data, equivalence, config)
            await collector.collect(questions, lambda tally: seen.append(replace(tally)))
    return seen


def row_scores(traces: Traces, trace: int) -> list[float]:
    """The scripted scores that the rows carry."""
    return [float(value) for value in traces.values(traces.paths[trace])[:, 0]]


async def test_every_question_has_its_traces_and_branches(tmp_path: Path) -> None:
    tallies = await run(tmp_path, engine())
    assert [(tally.done, tally.failed) for tally in tallies] == [(n, 0) for n in range(1, 7)]
    traces = read_traces([tmp_path])
    assert sorted(traces.questions) == sorted(question.key for question in QUESTIONS)
    for question in range(6):
        mine = np.flatnonzero(traces.question == question)
        assert traces.parent[mine].tolist()[:3] == [ROOT] * 3
        for branch in mine[3:]:
            parent = int(traces.parent[branch])
            assert parent in mine[:3]
            forked = int(traces.fork_thought[branch])
            # what a branch inherits are its parent's rows, and it goes on from there
            assert 1 <= forked <= len(traces.paths[parent])
            assert traces.paths[branch][:forked].tolist() == traces.paths[parent][:forked].tolist()
            assert (np.diff(traces.positions[traces.paths[branch]]) > 0).all()
    assert 0 < traces.right.mean() < 1
    assert np.isfinite(traces.confidences).all()
    assert all(0 <= score <= 1 for trace in range(len(traces)) for score in row_scores(traces, trace))


async def test_the_label_is_whether_the_traces_own_answer_is_right(tmp_path: Path) -> None:
    await run(tmp_path, engine())
    labels = {}
    for shard in read_manifest(tmp_path).shards:
        with np.load(tmp_path / shard.file) as arrays:
            for answer, right in zip(arrays["answer"].tolist(), arrays["right"].tolist(), strict=True):
                labels.setdefault(answer, set()).add(right)
    assert labels["29"] == {True}
    assert all(found == {False} for answer, found in labels.items() if answer != "29")
    assert len(labels) > 2


async def test_the_engines_slots_are_kept_full(tmp_path: Path) -> None:
    busy = engine()
    sizes: list[int] = []
    step = busy.step

    def counted() -> StepBatch:
        batch = step()
        sizes.append(len(batch.outputs))
        return batch

    busy.step = counted  # type: ignore[method-assign]
    await run(tmp_path, busy)
    # until the last questions run out
    assert np.mean(np.array(sizes[: len(sizes) * 2 // 3]) == 5) > 0.9


class OneFails(ScriptedEngine):
    """Refuses the traces of one question."""

    async def add(
        self,
        trace_id: str,
        token_ids: Sequence[int],
        sampling: SamplingSpec,
        *,
        stop_at_boundary: bool = False,
    ) -> None:
        if trace_id.startswith(QUESTIONS[2].key) and trace_id.endswith("/1"):
            raise EngineError("refused")
        await super().add(trace_id, token_ids, sampling, stop_at_boundary=stop_at_boundary)


async def test_a_failing_question_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    tallies = await run(tmp_path, OneFails(Drawn(seed=3), ScriptedConfig(slots=5, kv_blocks=4096)))
    assert (tallies[-1].done, tallies[-1].failed) == (5, 1)
    manifest = read_manifest(tmp_path)
    assert manifest.failed == {QUESTIONS[2].key: "q2: refused"}
    assert len(manifest.questions) == 5

    again = await run(tmp_path, engine())
    assert [(tally.done, tally.failed) for tally in again] == [(6, 0)]
    assert read_manifest(tmp_path).failed == {}


async def test_a_question_too_long_for_the_context_fails_alone(tmp_path: Path) -> None:
    long = Question(question_key("long"), "long", "x" * 5000, "1")
    await run(tmp_path, engine(), [QUESTIONS[0], long, QUESTIONS[1]])
    manifest = read_manifest(tmp_path)
    assert set(manifest.questions.values()) == {"q0", "q1"}
    assert "leave no room to decode; must be fewer than" in manifest.failed[long.key]


async def test_what_was_done_before_the_engine_died_is_kept(tmp_path: Path) -> None:
    dying = engine()
    seen = 0

    def report(tally: Tally) -> None:
        nonlocal seen
        seen = tally.done
        if tally.done == 3:
            dying.die("gone")

    async with Equivalence() as equivalence:
        with writer(tmp_path, dying) as data:
            collector = Collector(dying, data, equivalence, CONFIG)
            with pytest.raises(EngineError, match="gone"):
                await collector.collect(QUESTIONS, report)
    assert len(read_manifest(tmp_path).questions) == seen == 3


async def test_a_question_that_is_done_is_stored_soon_however_long_the_next_one_takes(tmp_path: Path) -> None:
    stuck, one_is_done = engine(), asyncio.Event()
    step = stuck.steps

    async def steps() -> AsyncIterator[StepBatch]:
        async for batch in step():
            yield batch
            if one_is_done.is_set():
                await asyncio.Event().wait()

    stuck.steps = steps  # type: ignore[method-assign]
    config = replace(CONFIG, traces=1, siblings=0, flush_questions=100, flush_seconds=0.05)
    async with Equivalence() as equivalence:
        with writer(tmp_path, stuck) as data:
            collector = Collector(stuck, data, equivalence, config)
            collecting = asyncio.create_task(collector.collect(QUESTIONS, lambda _: one_is_done.set()))
            async with asyncio.timeout(10):
                await one_is_done.wait()
                while not (stored := read_manifest(tmp_path).questions):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not collecting.done()
            assert 0 < len(stored) < len(QUESTIONS)
            collecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await collecting


def test_a_thoughts_confidence_is_the_same_in_the_data_as_in_a_search() -> None:
    """That of a token is 0 where it is not known, which does not make the model less sure."""
    tokens = [[4.0, 0.0, 8.0], [0.0, 0.0], [3.0]]
    searched = Trace(1, None)
    written = Written(prompt=2, start=2, tokens=[1, 2])
    for thought in tokens:
        for value in thought:
            searched.tokens.append(7)
            searched.confidences.append(value)
            written.take(TraceOutput("t", [7], confidences=[value]))
        written.take(TraceOutput("t", row=HiddenRow(len(written.tokens) - 1, b"", "float32")))
    ends = [0, *accumulate(map(len, tokens))]
    found = [searched.mean_confidence(start, end) for start, end in pairwise(ends)]
    assert found == [6.0, 0.0, 3.0]
    assert written.thought_confidences() == pytest.approx([6.0, math.nan, 3.0], nan_ok=True)


async def test_the_places_of_branches_follow_from_the_seed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        await run(tmp_path / name, engine())
    one, two = (read_traces([tmp_path / name]) for name in ("one", "two"))

    def places(traces: Traces) -> dict[str, list[tuple[int, int]]]:
        return {
            traces.questions[question]: [
                (int(traces.parent[trace] - mine[0]), int(traces.fork_thought[trace])) for trace in mine[3:]
            ]
            for question in range(6)
            if len(mine := np.flatnonzero(traces.question == question))
        }

    assert places(one) == places(two)


# ---- the program


def lines(path: Path, items: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    listed = lines(tmp_path / "q.jsonl", [{"question": f"q{n}", "answer": 29} for n in range(6)])
    return [
        *("--model", "m", "--questions", str(listed), "--out", str(tmp_path / "out")),
        *("--answer-mode", "integer", "--traces", "2", "--siblings", "1"),
    ]


async def test_the_program_collects_and_says_what_it_did(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def start(config: VllmConfig) -> ScriptedEngine:
        assert (config.model, config.boundary_rule) == ("m", "blank_line")
        return engine()

    given = parser().parse_args(options)
    questions = read_questions(given.questions, given.answer_mode)
    assert await collect(given, questions, start) == 0
    said = capsys.readouterr().err
    assert "6/6 questions, 18 traces" in said
    assert "6 of 6 questions; in all 18 traces" in said
    origin = read_manifest(tmp_path / "out").origin
    assert (origin.model, origin.engine_version, origin.traces, origin.siblings) == (
        "scripted",
        "scripted",
        2,
        1,
    )
    assert origin.sampling["max_tokens"] == 4095


async def test_an_interrupted_program_keeps_what_is_done_and_says_how_to_go_on(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = engine(turns=1)

    async def start(config: VllmConfig) -> ScriptedEngine:
        return slow

    step = slow.step

    def step_and_interrupt() -> StepBatch:
        if slow.step_number == 300:
            os.kill(os.getpid(), signal.SIGINT)
        return step()

    slow.step = step_and_interrupt  # type: ignore[method-assign]

    given = parser().parse_args(options)
    questions = read_questions(given.questions, given.answer_mode)
    try:
        assert await collect(given, questions, start) == INTERRUPTED
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)
    said = capsys.readouterr().err
    assert "interrupted; run the same command to go on" in said
    done = len(read_manifest(tmp_path / "out").questions)
    assert f"{done} of 6 questions" in said
    assert done < 6


async def test_questions_of_other_lists_in_the_data_set_are_not_counted(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither those that are done nor those that failed, which the same command would not try again."""
    given = parser().parse_args(options)

    async def ran(of: ScriptedEngine, names: Sequence[str]) -> tuple[int, str]:
        async def start(config: VllmConfig) -> ScriptedEngine:
            return of

        asked = [Question(question_key(name), name, name, "29") for name in names]
        status = await collect(given, asked, start)
        return status, capsys.readouterr().err

    first = OneFails(Drawn(seed=3), ScriptedConfig(slots=5, kv_blocks=4096))
    status, said = await ran(first, [f"q{n}" for n in range(6)])
    assert (status, "1 questions failed" in said) == (0, True)

    status, said = await ran(engine(), ["q0", "a", "b"])
    assert status == 0
    assert "3/3 questions, 6 traces" in said
    assert "3 of 3 questions; in all 21 traces" in said
    assert "failed" not in said

    long = "x" * 5000
    status, said = await ran(engine(), [long])
    assert status == FAILED
    assert "0/1 questions, 0 traces, 1 failed" in said
    assert "0 of 1 questions" in said
    assert "1 questions failed" in said


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("--top-p", "0", "above 0, at most 1"),
        ("--top-p", "1.5", "above 0, at most 1"),
        ("--gpu-memory", "0", "above 0, at most 1"),
        ("--gpu-memory", "nan", "above 0, at most 1"),
        ("--temperature", "-1", "at least 0"),
        ("--temperature", "inf", "at least 0"),
    ],
)
def test_a_number_that_no_engine_takes_is_refused_with_the_range(
    flag: str, value: str, allowed: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([*options, flag, value])
    assert f"argument {flag}: is '{value}'; must be a number {allowed}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ({"question": "q"}, "answer: is missing; must be a text or a number"),
        ({"question": "q", "answer": None}, "answer: is None; must be a text or a number"),
        ({"question": "q", "answer": "seven"}, "answer: is 'seven'; must be a whole number"),
        ({"answer": 1}, "question: is missing; must be a text that is not empty"),
        ({"question": " ", "answer": 1}, "question: is ' '; must be a text that is not empty"),
        ([1], "is no JSON object; must have the fields question and answer"),
    ],
)
def test_a_bad_list_is_refused_in_one_line_that_names_the_field(
    item: object, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lines(tmp_path / "list.jsonl", [{"question": "good", "answer": 1}, item])
    arguments = ["--model", "m", "--questions", str(path), "--out", str(tmp_path), "--answer-mode", "integer"]
    assert main(arguments) == BAD_INPUT
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"list.jsonl, line 2: {named}" in said


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (r'{"question": "a\ud800b", "answer": 1}', r"question: is 'a\ud800b'; must be text without lone"),
        (r'{"question": "q", "answer": "\udc00"}', r"answer: is '\udc00'; must be text without lone"),
        (r'{"question": "q", "answer": 1, "id": "\udc00"}', r"id: is '\udc00'; must be text without lone"),
        ('{"question": "q", "answer": 1, "id": [7]}', "id: is [7]; must be a text or a number"),
        ('{"question": "q", "answer": 1, "more": %s}' % ("[" * 100_000 + "]" * 100_000), "is no JSON object"),
        (
            '{"question": "q", "answer": %s}' % ("[" * 500 + "]" * 500),
            "answer: is [[[[[[[...]]]]]]]; must be",
        ),
        ('{"question": "q", "answer": 1e999999999}', "answer: is 1e999999999; must be a text or a number of"),
        ('{"question": "q", "answer": 1e-999999999}', "answer: is 1e-999999999; must be a text or a number"),
        (
            '{"question": "q", "answer": 1e%s}' % ("9" * 30),
            "answer: is 1e99999999999...99999999999999; must be a text or a number of at most 198 digits",
        ),
        (
            '{"question": "q", "answer": %s}' % ("9" * 5000),
            "answer: is 9999999999999...99999999999999; must be a text or a number of at most 198 digits",
        ),
        ('{"question": "q", "answer": NaN}', "answer: is nan; must be a text or a number"),
        ('{"question": "q", "answer": true}', "answer: is True; must be a text or a number"),
        ('{"question": 7, "answer": 1}', "question: is 7; must be a text that is not empty"),
    ],
)
def test_a_line_of_whatever_kind_is_refused_in_one_short_line(
    line: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text(line)
    arguments = ["--model", "m", "--questions", str(path), "--out", str(tmp_path), "--answer-mode", "integer"]
    assert main(arguments) == BAD_INPUT
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert len(said) < 200
    assert f"list.jsonl, line 1: {named}" in said


def test_only_a_line_feed_ends_a_line_and_a_mark_at_the_beginning_is_no_text(tmp_path: Path) -> None:
    texts = [f"a{mark}b" for mark in "\u2028\u2029\u0085\x0b\x0c\x1c\x1d\x1e"]
    escaped = {"\x0b", "\x0c", "\x1c", "\x1d", "\x1e"}
    items = [json.dumps({"question": text, "answer": 1}, ensure_ascii=text[1] in escaped) for text in texts]
    path = tmp_path / "list.jsonl"
    path.write_bytes(("\ufeff" + "\r\n".join(items)).encode())
    assert {question.text for question in read_questions([path], "integer")} == set(texts)


@pytest.mark.parametrize(
    ("mode", "written", "known"),
    [
        ("integer", "1e22", "1" + "0" * 22),
        ("integer", "-1.5E+3", "-1500"),
        ("integer", "12.0", "12"),
        ("integer", "123456789012345678901234567890", "123456789012345678901234567890"),
        ("boxed", "1e22", "1" + "0" * 22),
        ("boxed", "0.00005", "0.00005"),
        ("boxed", "5e-5", "0.00005"),
        ("boxed", "1.2345678901234567e19", "12345678901234567000"),
        ("boxed", "0.12345678901234567890123", "0.12345678901234567890123"),
        ("none", "1e3", "1000"),
    ],
)
def test_a_known_number_is_exactly_the_one_in_the_list(
    mode: str, written: str, known: str, tmp_path: Path
) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text(f'{{"question": "q", "answer": {written}, "id": 1e3}}')
    (question,) = read_questions([path], mode)
    assert (question.answer, question.name) == (known, "1e3")


def test_lists_without_a_question_or_a_usable_pattern_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="must be at least one question"):
        read_questions([lines(tmp_path / "empty.jsonl", [])], "boxed")
    with pytest.raises(QuestionError, match=r"questions: .* cannot be read"):
        read_questions([tmp_path / "none.jsonl"], "boxed")
    one = [lines(tmp_path / "one.jsonl", [{"question": "q", "answer": "b"}])]
    with pytest.raises(QuestionError, match=r"answer_regex: is missing"):
        read_questions(one, "regex")
    with pytest.raises(QuestionError, match=r"answer_regex: is '\('; must be a regular expression"):
        read_questions(one, "regex", "(")


@pytest.mark.parametrize(
    ("mode", "given", "known"),
    [
        ("boxed", "\\frac{1}{2}", "\\frac{1}{2}"),
        ("boxed", "so \\boxed{12}", "12"),
        ("integer", "1,024", "1024"),
        ("choice", "(b)", "B"),
        ("none", "two words", "two words"),
    ],
)
def test_a_known_answer_is_read_as_those_of_traces_are(
    mode: str, given: str, known: str, tmp_path: Path
) -> None:
    path = lines(tmp_path / "list.jsonl", [{"question": "q", "answer": given}])
    (question,) = read_questions([path], mode)
    assert question.answer == known


def test_a_part_of_the_questions_is_a_sample_of_all_lists_and_grows(tmp_path: Path) -> None:
    lists = [
        lines(tmp_path / f"{name}.jsonl", [{"question": f"{name}{n}", "answer": n} for n in range(50)])
        for name in "ab"
    ]
    some, more = (read_questions(lists, "integer", limit=limit) for limit in (20, 40))
    assert more[:20] == some
    assert {question.text[0] for question in some} == {"a", "b"}
    assert read_questions([*lists, lists[0]], "integer") == read_questions(lists, "integer")


def test_a_line_of_progress_has_the_rate_and_what_is_left() -> None:
    tally = Tally(questions=100, before=10, done=30, failed=2, traces=120, right=30, tokens=60_000)
    line = line_of(tally, seconds=60)
    assert line == "30/100 questions, 120 traces, 25% right, 2 failed, 1,000 tokens/s, 3 min left"
