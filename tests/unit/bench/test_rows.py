"""Rows of comparisons: every cell follows from the runs, and files of a long run can be gone on with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import report, scorer_kinds
from bench.asking import Run, load, parameters, same
from bench.compare import HEADER, Results, Scene, line, override, overview
from bench.open_loop import Arrival, arrivals, mixed
from bench.rows import acted, never_begun, summary
from decoder_worker.policies import POLICIES, Limits, make_policy

SCENE = Scene("medium", 24, 0)


def run(question: str = "q1", *, right: bool = True, **values: float) -> Run:
    counts = {"roots": 24, "branches": 0, "finished": 20, "finished_right": 10, "pruned": 4, "stopped": 0}
    counts |= {"rounds": 0, "evictions": 0, "generated": 4800, "recomputed": 0}
    merged = {"latency": 3.0, "queued": 1.0, **counts, **values}
    return Run(question=question, answer="7", right=right, degraded=False, **merged)  # type: ignore[arg-type]


def row(policy: str, runs: list[Run]) -> dict[str, object]:
    extra = {"parameters": {"N": 24}, "finished_right": 0.5, "rounds": 0.0, "wall": 10.0}
    return {"split": SCENE.split, "size": SCENE.size, "kv_blocks": 0, **summary(policy, runs, 10.0), **extra}


def test_a_row_by_hand() -> None:
    found = summary("step", [run(), run(right=False, latency=5.0, generated=2400)], 10.0)
    assert (found["right"], found["requests"], found["accuracy"]) == (1, 2, 0.5)
    assert found["generated"] == 3600
    assert found["unique"] == 7200 / 48
    assert found["traces_per_second"] == 4.0
    assert found["latency"] == {
        "p50": 4.0,
        "p90": pytest.approx(4.8),
        "p97": pytest.approx(4.94),
        "p99": 4.98,
        "p97_interval": (3.0, 5.0),
    }
    assert found["inference"]["p50"] == 3.0  # type: ignore[index]
    assert (found["pruned"], found["acted"]) == (4.0, True)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_that_did_nothing_is_marked_where_it_should_have_acted(policy: str) -> None:
    idle = [run(pruned=0)]
    passive = {"vanilla", "self_consistency", "best_of_n"}
    assert acted(policy, idle) == (policy in passive)
    assert ("did not act" in line(row(policy, idle))[-1]) == (policy not in passive)
    busy = [run(branches=3, pruned=3, stopped=1)]
    assert acted(policy, busy)


def test_an_overview_has_a_line_per_policy_and_a_column_per_scene() -> None:
    elsewhere = {**row("step", [run(right=False, pruned=0)]), "split": "hard"}
    table = overview([row("vanilla", [run()]), row("step", [run(), run(right=False)]), elsewhere])
    assert table.splitlines()[0] == "| policy | medium, N = 24 | hard, N = 24 |"
    assert table.splitlines()[2:] == [
        "| `vanilla` | 1.00 [0.21, 1.00] · 4.8 k | – |",
        "| `step` | 0.50 [0.09, 0.91] · 4.8 k | 0.00 [0.00, 0.79] · 4.8 k (did not act: no result) |",
    ]


def test_traces_that_were_not_needed_any_more_are_stops_although_they_never_began() -> None:
    values = parameters("deepconf", 24, {})
    assert never_begun(values, roots=8) == 16
    assert never_begun(values, roots=24) == 0
    assert never_begun(parameters("gambit", 24, {}), roots=24) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_takes_the_size_of_a_scene(policy: str) -> None:
    made = make_policy(policy, "tiny", parameters(policy, 24, {}), Limits(512, 1900))
    assert made.capacity == (1 if policy == "vanilla" else 24)


def test_an_interrupted_run_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    first = Results("table", resume=False)
    first.add(row("step", [run("q1"), run("q2")]), [run("q1"), run("q2")])
    second = Results("table", resume=True)
    assert second.has(SCENE, "step", {"N": 24}, 2)
    assert not second.has(SCENE, "sart", {"N": 24}, 2)
    assert not second.has(Scene("medium", 64, 0), "step", {"N": 64}, 2)
    second.add(row("sart", [run("q1")]), [run("q1")])

    written = json.loads((tmp_path / "table.json").read_text())
    assert [entry["policy"] for entry in written["rows"]] == ["step", "sart"]
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 3
    tables = (tmp_path / "table.md").read_text().split("\n\n")
    assert [table.strip().count("\n") + 1 for table in tables] == [2 + 2, 2 + 2]
    assert Results("table", resume=False).rows == []


def test_rows_of_other_questions_or_parameters_are_not_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    results = Results("table", resume=False)
    results.add(row("step", [run("q1"), run("q2")]), [run("q1"), run("q2")])
    for values, questions in (({"N": 24}, 60), ({"N": 24, "vote": "last"}, 2)):
        with pytest.raises(SystemExit, match="--name: table has step on medium with N = 24 from 2 questions"):
            results.has(SCENE, "step", values, questions)


def test_single_runs_without_their_row_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    results = Results("table", resume=False)
    results.add(row("step", [run("q1")]), [run("q1")])
    with monkeypatch.context() as killed:
        killed.setattr(report, "save", lambda *_: None)
        results.add(row("sart", [run("q1")]), [run("q1")])
    resumed = Results("table", resume=True)
    resumed.add(row("sart", [run("q1")]), [run("q1")])
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [("N=8", ("N", 8)), ("tau=0.5", ("tau", 0.5)), ("vote=decorrelated", ("vote", "decorrelated"))],
)
def test_overrides_are_numbers_or_words(text: str, expected: tuple[str, object]) -> None:
    assert override(text) == expected


@pytest.mark.parametrize("finished_right", [0.5, None])
def test_a_line_has_a_cell_for_every_column(finished_right: float | None) -> None:
    found = {**row("step", [run()]), "finished_right": finished_right, "scorer": "mlp", "degraded": 0}
    assert len(line(found)) == len(HEADER)
    assert len(scorer_kinds.line(found)) == len(scorer_kinds.HEADER)


def test_an_answer_is_right_as_a_number() -> None:
    assert same("097", 97)
    assert not same(None, 97)
    assert not same("about 97", 97)


def test_arrivals_are_the_same_for_every_policy_and_of_the_rate_asked_for() -> None:
    questions = mixed()
    assert len({question.id for question in questions}) == 4 * 60
    assert questions[1] == load("medium", 1)[0]
    found = arrivals(questions, 5.0, 200.0, seed=1)
    assert found == arrivals(questions, 5.0, 200.0, seed=1)
    assert found != arrivals(questions, 5.0, 200.0, seed=2)
    assert len(found) == pytest.approx(1000, abs=4 * 1000**0.5)
    assert [arrival.at for arrival in found] == sorted(arrival.at for arrival in found)
    assert found[240] == Arrival(questions[0], found[240].at)
