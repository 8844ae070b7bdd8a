from __future__ import annotations

import re
from pathlib import Path

import pytest

from thoughtbeam.cli import demo, exits
from thoughtbeam.cli.main import main
from thoughtbeam.cli.resp_text import split_command
from thoughtbeam.results import Answer, Result, TokenUsage, TreeCounts, TreeState
from thoughtbeam.supervision.state import StateDirectory


def test_the_expected_value_is_the_true_one() -> None:
    start, *steps = re.findall(r"(?:Start with |[a-z]\) )([-+*]?\d+)", demo.QUESTION)
    value = int(start)
    for step in steps:
        value = value * int(step[1:]) if step[0] == "*" else value + int(step)

    assert len(steps) == 7
    assert value % 1000 == demo.EXPECTED


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [("19", "right"), ("019", "right"), ("919", "wrong"), ("\\pi", "wrong"), (None, "no answer")],
)
def test_the_verdict(answer: str | None, verdict: str) -> None:
    given = None if answer is None else Answer(answer, 1.0, 1.0, 1, "")
    result = Result(
        "t1", TreeState.SUCCEEDED, given, (), TreeCounts(), TokenUsage(), "", False, 1.0, 0.0, "gambit"
    )

    assert verdict in demo._verdict(result)


def test_the_store_is_asked_about_the_winning_trace() -> None:
    answer = Answer("19", 1.0, 1.0, 17, "")
    ended = (), TreeCounts(), TokenUsage(), "", False, 1.0, 0.0, "gambit"
    answered = demo.queries(Result("t1", TreeState.SUCCEEDED, answer, *ended))
    without = demo.queries(Result("t1", TreeState.SUCCEEDED, None, *ended))

    assert "HGETALL 'tb:{t1}:node:17'" in answered
    assert [q for q in answered if q not in without] == ["HGETALL 'tb:{t1}:node:17'"]
    assert all("%" not in query for query in answered)
    assert split_command(without[1]) == [
        *(b"HMGET", b"tb:{t1}:meta", b"state", b"nodes", b"roots", b"branches", b"finished", b"pruned"),
        *(b"cancelled", b"generated", b"answer"),
    ]


@pytest.mark.parametrize("arguments", [["demo"], ["demo", "--keep"], ["serve", "--local"]])
def test_services_that_run_already_are_not_disturbed(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("THOUGHTBEAM_HOME", str(tmp_path))
    with StateDirectory().locked():
        assert main(arguments) == exits.FAILED

    # not even that something starts is said
    (line,) = capsys.readouterr().err.splitlines()
    assert f"services run already in {tmp_path}" in line
