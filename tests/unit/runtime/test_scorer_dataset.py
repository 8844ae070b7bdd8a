"""Data sets of scorers: what is written is read back, whatever interrupts the writer."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoughtbeam.runtime import scorer_dataset_reader
from thoughtbeam.runtime.scorer_dataset import (
    MANIFEST,
    ROOT,
    ROW_TYPES,
    DatasetError,
    Origin,
    QuestionRecord,
    TraceRecord,
    question_key,
)
from thoughtbeam.runtime.scorer_dataset_reader import read_manifest, read_traces
from thoughtbeam.runtime.scorer_dataset_writer import DatasetWriter

ORIGIN = Origin(
    model="m",
    fingerprint="f" * 32,
    engine_version="vllm 1",
    boundary_rule="blank_line",
    hidden_size=3,
    sampling={"temperature": 1.0, "max_tokens": 100},
    traces=2,
    siblings=1,
    answer_mode="integer",
)


@st.composite
def questions(draw: st.DrawFn, dtype: str) -> list[QuestionRecord]:
    """Questions with roots and branches, also of branches; rows that hold every kind of value."""
    item = np.dtype(ROW_TYPES[dtype])
    found = []
    for number in range(draw(st.integers(1, 4))):
        traces: list[TraceRecord] = []
        totals: list[int] = []
        for trace in range(draw(st.integers(1, 4))):
            parent = draw(st.integers(ROOT, trace - 1))
            forked = draw(st.integers(0, totals[parent])) if parent != ROOT else 0
            own = draw(st.integers(0, 3))
            totals.append(forked + own)
            size = own * ORIGIN.hidden_size * item.itemsize
            traces.append(
                TraceRecord(
                    number=trace,
                    parent=parent,
                    fork_thought=forked,
                    prompt_tokens=5,
                    tokens=40,
                    finish=draw(st.sampled_from(["stop", "length"])),
                    answer=draw(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)),
                    right=draw(st.booleans()),
                    rows=draw(st.binary(min_size=size, max_size=size)),
                    positions=[6 + 3 * (forked + thought) for thought in range(own)],
                    confidences=draw(st.lists(st.floats(0, 40, width=32), min_size=own, max_size=own)),
                )
            )
        has_rows = any(trace.positions for trace in traces)
        found.append(
            QuestionRecord(question_key(str(number)), f"q{number}", dtype if has_rows else "", traces)
        )
    return found


def write(path: Path, records: Sequence[QuestionRecord], origin: Origin = ORIGIN, per_shard: int = 2) -> None:
    with DatasetWriter(path, origin) as writer:
        for record in records:
            writer.add(record)
            if writer.waiting >= per_shard:
                writer.flush()


def record(name: str, *, thoughts: int = 2, right: bool = True, value: float = 1.0) -> QuestionRecord:
    """A question with one trace of float32 rows."""
    rows = np.full((thoughts, 3), value, dtype="<f4")
    trace = TraceRecord(
        0, ROOT, 0, 5, 40, "stop", "7", right, rows.tobytes(), range(6, 6 + thoughts), [1.0] * thoughts
    )
    return QuestionRecord(question_key(name), name, "float32" if thoughts else "", [trace])


def bits(record: TraceRecord, dtype: str) -> np.ndarray:
    return np.frombuffer(record.rows, dtype=ROW_TYPES[dtype]).reshape(-1, ORIGIN.hidden_size)


@pytest.mark.parametrize("dtype", list(ROW_TYPES))
def test_what_is_written_is_read_back(dtype: str) -> None:
    @settings(deadline=None, max_examples=100)
    @given(questions(dtype), st.integers(1, 3))
    def check(records: list[QuestionRecord], per_shard: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            write(path, records, per_shard=per_shard)
            every = [trace for one in records for trace in one.traces]
            if not any(trace.positions for trace in every):
                with pytest.raises(DatasetError, match="is empty"):
                    read_traces([path])
                return
            traces = read_traces([path])
        assert list(traces.questions) == [one.key for one in records]
        assert len(traces) == len(every)
        assert traces.right.tolist() == [trace.right for trace in every]
        assert traces.tokens.tolist() == [trace.tokens for trace in every]
        base = 0
        for one in records:
            thoughts: list[np.ndarray] = []
            for number, trace in enumerate(one.traces):
                index = base + number
                assert traces.parent[index] == (base + trace.parent if trace.parent != ROOT else ROOT)
                own = bits(trace, dtype)
                inherited = thoughts[trace.parent][: trace.fork_thought] if trace.parent != ROOT else own[:0]
                # up to the end of the last one, whether or not its row is a number; positions are as above
                assert traces.inherited[index] == (3 * len(inherited) - 1 if len(inherited) else 0)
                whole = np.concatenate([inherited, own])
                thoughts.append(whole)
                kept = traces.rows[traces.paths[index]]
                finite = np.isfinite(traces.values(np.arange(len(traces.rows)))).all(axis=1)
                # a row that is no number is left out; the others are there bit by bit
                assert finite[traces.paths[index]].all()
                wanted = [row.tobytes() for row in whole if np.isfinite(_floats(row, dtype)).all()]
                assert [row.tobytes() for row in kept] == wanted
            base += len(one.traces)

    check()


def _floats(row: np.ndarray, dtype: str) -> np.ndarray:
    return (row.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else row


def test_depths_count_tokens_after_the_prompt(tmp_path: Path) -> None:
    write(tmp_path, [record("a")])
    assert read_traces([tmp_path]).depths(0).tolist() == [2, 3]


def test_a_run_goes_on_where_another_stopped(tmp_path: Path) -> None:
    write(tmp_path, [record("a"), record("b"), record("c")])
    with DatasetWriter(tmp_path, ORIGIN) as writer:
        assert set(writer.manifest.questions.values()) == {"a", "b", "c"}
        writer.add(record("d"))
    assert list(read_manifest(tmp_path).questions.values()) == ["a", "b", "c", "d"]
    assert len(read_traces([tmp_path])) == 4


def test_what_an_interrupted_writer_left_half_written_is_not_there(tmp_path: Path) -> None:
    write(tmp_path, [record("a")])
    # a shard that the manifest does not know, and a part of one
    (tmp_path / "shard-00001.npz").write_bytes(b"PK half")
    (tmp_path / "shard-00002.npz.part").write_bytes(b"PK")
    assert len(read_traces([tmp_path])) == 1
    write(tmp_path, [record("b")])
    assert len(read_traces([tmp_path])) == 2


def test_a_failed_question_is_told_until_it_is_done(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, ORIGIN) as writer:
        writer.fail(question_key("a"), "a: too long")
    assert read_manifest(tmp_path).failed == {question_key("a"): "a: too long"}
    write(tmp_path, [record("a")])
    assert read_manifest(tmp_path).failed == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("fingerprint", "0" * 32),
        ("boundary_rule", "other"),
        ("sampling", {"temperature": 0.5}),
        ("traces", 9),
    ],
)
def test_rows_of_another_origin_are_not_mixed_in(tmp_path: Path, field: str, value: object) -> None:
    write(tmp_path, [record("a")])
    with pytest.raises(DatasetError, match=f"^{field}: is .*; must be .*--out another directory"):
        DatasetWriter(tmp_path, replace(ORIGIN, **{field: value}))


def test_rows_of_another_type_are_not_mixed_in(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path, ORIGIN) as writer:
        writer.add(record("a"))
        other = replace(record("b"), dtype="float16")
        with pytest.raises(DatasetError, match="dtype: is float16; must be float32"):
            writer.add(other)


def test_two_processes_do_not_write_the_same_data_set(tmp_path: Path) -> None:
    with (
        DatasetWriter(tmp_path, ORIGIN),
        pytest.raises(DatasetError, match="another process is writing"),
    ):
        DatasetWriter(tmp_path, ORIGIN)
    DatasetWriter(tmp_path, ORIGIN).__exit__()


def test_data_sets_of_one_model_are_read_together_and_a_question_counts_once(tmp_path: Path) -> None:
    write(tmp_path / "one", [record("a"), record("b")])
    write(tmp_path / "two", [record("b", value=2.0), record("c")], replace(ORIGIN, traces=7))
    traces = read_traces([tmp_path / "one", tmp_path / "two"])
    assert list(traces.questions) == [question_key(name) for name in "abc"]
    assert traces.question.tolist() == [0, 1, 2]
    assert traces.values(traces.paths[1]).tolist() == [[1.0] * 3] * 2
    write(tmp_path / "three", [record("a")], replace(ORIGIN, fingerprint="0" * 32))
    with pytest.raises(DatasetError, match="fingerprint: is '0"):
        read_traces([tmp_path / "one", tmp_path / "three"])


def test_what_is_no_data_set_is_refused_in_one_line(tmp_path: Path) -> None:
    def refused(path: Path) -> str:
        with pytest.raises(DatasetError) as caught:
            read_traces([path])
        message = str(caught.value)
        assert "\n" not in message
        return message

    assert "is no data set" in refused(tmp_path)
    write(tmp_path, [record("a", thoughts=0)])
    assert "is empty; there must be at least one trace with a thought" in refused(tmp_path)
    write(tmp_path, [record("b")])
    good = json.loads((tmp_path / MANIFEST).read_text())
    origin = {**good["origin"], "hidden_size": "3"}
    for change, named in (
        ({"format": 99}, "format: is 99; must be 1"),
        ({"dtype": "int8"}, "dtype: is 'int8'; must be one of float32, float16, bfloat16"),
        ({"origin": origin}, "origin.hidden_size: is '3'; must be a whole number"),
        ({"shards": [{}]}, "is not as a manifest must be"),
        ({"shards": [{**good["shards"][0], "thoughts": "2"}]}, "shards[0].thoughts: is '2'; must be a whole"),
    ):
        (tmp_path / MANIFEST).write_text(json.dumps({**good, **change}))
        assert named in refused(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    assert "cannot be read" in refused(tmp_path)
    (tmp_path / MANIFEST).write_text(json.dumps(good))
    shard = tmp_path / good["shards"][1]["file"]
    arrays = dict(np.load(shard))
    np.savez(shard, **{name: values for name, values in arrays.items() if name != "right"})
    assert "right: is missing; must be [T] whether" in refused(tmp_path)
    np.savez(shard, **{**arrays, "rows": arrays["rows"][:, :2]})
    assert "rows: has shape (2, 2); must have (2, 3)" in refused(tmp_path)
    shard.write_bytes(b"nothing")
    assert "cannot be read" in refused(tmp_path)


def family(path: Path) -> dict[str, np.ndarray]:
    """Two questions, the first with a root of three thoughts and two branches of it; the shard's arrays."""

    def trace(number: int, parent: int, fork: int, own: int) -> TraceRecord:
        rows = np.ones((own, 3), "<f4")
        return TraceRecord(
            number, parent, fork, 5, 40, "stop", "7", True, rows.tobytes(), range(6, 6 + own), [1.0] * own
        )

    traces = [trace(0, ROOT, 0, 3), trace(1, 0, 2, 1), trace(2, 0, 3, 1)]
    write(path, [QuestionRecord(question_key("a"), "a", "float32", traces), record("b")])
    return dict(np.load(path / "shard-00000.npz"))


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("question", [0, 0, 0, 2], "question: is 2; must be from 0 to 1"),
        ("question", [-1, 0, 0, 1], "question: is -1; must be from 0 to 1"),
        ("number", [0, 1, 1, 0], "number: is 1 twice; must differ within a question"),
        ("number", [0, 1, 2], "number: has shape (3,); must have (4,)"),
        ("number", 3, "number: has shape (); must have (4,)"),
        ("parent", [-1, 9, 0, -1], "parent: is 9; must be -1 or the number of an earlier trace"),
        ("parent", [1, 0, 0, -1], "parent: is 1; must be -1 or the number of an earlier trace"),
        ("parent", [-1, 0, 0, 2], "parent: is 2; must be -1 or the number of an earlier trace"),
        ("parent", [-1, -2, 0, -1], "parent: is -2; must be -1 or the number of an earlier trace"),
        ("fork_thought", [0, 4, 3, 0], "fork_thought: is 4; must be from 0 to 3"),
        ("fork_thought", [0, -1, 3, 0], "fork_thought: is -1; must be from 0 to 3"),
        ("fork_thought", [1, 2, 3, 0], "fork_thought: is 1; must be from 0 to 0"),
        ("prompt_tokens", [5], "prompt_tokens: has shape (1,); must have (4,)"),
        ("tokens", [40.0] * 4, "tokens: has type float64; must have int32"),
        ("right", [1, 0, 1, 0], "right: has type int32; must have bool"),
        ("offsets", [0, 4, 3, 5, 7], "offsets: must rise from 0 to 7"),
        ("offsets", [1, 3, 4, 5, 7], "offsets: must rise from 0 to 7"),
        ("offsets", [0, 3, 4, 5, 6], "offsets: must rise from 0 to 7"),
        ("positions", [6] * 6, "positions: has shape (6,); must have (7,)"),
        ("confidences", [[1.0]] * 7, "confidences: has shape (7, 1); must have (7,)"),
        ("keys", "a", "keys: has shape (); must have (1,)"),
        ("keys", [1, 2], "keys: has type int32; must have <U0"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(
    tmp_path: Path, name: str, values: object, message: str
) -> None:
    arrays = family(tmp_path)
    assert len(read_traces([tmp_path])) == 4
    shard, changed = tmp_path / "shard-00000.npz", np.array(values)
    if changed.dtype == np.int64 and name != "offsets":
        changed = changed.astype("<i4")
    np.savez(shard, **{**arrays, name: changed})
    with pytest.raises(DatasetError) as caught:
        read_traces([tmp_path])
    assert str(caught.value) == f"{shard}: {message}"


def test_a_shard_of_another_data_set_is_refused(tmp_path: Path) -> None:
    family(tmp_path / "one")
    write(tmp_path / "two", [record("a"), record("b")])
    shard = tmp_path / "two" / "shard-00000.npz"
    shard.write_bytes((tmp_path / "one" / "shard-00000.npz").read_bytes())
    with pytest.raises(DatasetError, match=r"shard-00000\.npz: .*has shape"):
        read_traces([tmp_path / "two"])


def test_wherever_a_shard_is_damaged_it_is_refused_or_nothing_is_lost(tmp_path: Path) -> None:
    rows = family(tmp_path)["rows"]
    shard = tmp_path / "shard-00000.npz"
    whole = shard.read_bytes()
    cut = [whole[:length] for length in range(0, len(whole), 97)]
    flipped = [
        whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        for place in range(0, len(whole), 11)
    ]
    refused = []
    for damaged in cut + flipped:
        shard.write_bytes(damaged)
        try:
            assert np.array_equal(read_traces([tmp_path]).rows, rows)
        except DatasetError as error:
            refused.append(str(error))
    assert len(refused) > len(cut) + len(flipped) // 2
    assert all(message.startswith(f"{shard}: ") and "\n" not in message for message in refused)


def test_reading_takes_little_more_memory_than_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scorer_dataset_reader, "_ROWS_AT_ONCE", 64)
    origin, thoughts = replace(ORIGIN, hidden_size=512), 200
    with DatasetWriter(tmp_path, origin) as writer:
        for number in range(16):
            trace = TraceRecord(
                *(0, ROOT, 0, 5, 900, "stop", "7", True, bytes(2 * 512 * thoughts)),
                *(range(6, 6 + thoughts), [1.0] * thoughts),
            )
            writer.add(QuestionRecord(question_key(str(number)), str(number), "bfloat16", [trace]))
            writer.flush()
    tracemalloc.start()
    traces = read_traces([tmp_path])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert traces.rows.nbytes < peak < 1.4 * traces.rows.nbytes


def test_a_shard_with_a_pickle_in_it_is_refused(tmp_path: Path) -> None:
    write(tmp_path, [record("a")])
    shard = tmp_path / "shard-00000.npz"
    arrays = dict(np.load(shard))
    np.savez(shard, **{**arrays, "answer": np.array([{"code": 1}], dtype=object)}, allow_pickle=True)
    with pytest.raises(DatasetError, match="cannot be read"):
        read_traces([tmp_path])
