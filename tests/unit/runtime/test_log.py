"""Structured logs: one line per event, and no value can forge another."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from thoughtbeam.runtime.log import EventLogger, KeyValueFormatter, setup_logging


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def log(lines: list[str]) -> EventLogger:
    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    logger = logging.getLogger("tests.runtime.log")
    logger.handlers[:] = [Collect()]
    logger.handlers[0].setFormatter(KeyValueFormatter())
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return EventLogger(logger.name)


def test_an_event_is_one_line_of_keys_and_values(log: EventLogger, lines: list[str]) -> None:
    log.info("tree_assigned", tree_id="4f1c", epoch=2)

    assert len(lines) == 1
    when, _, rest = lines[0].partition(" ")
    assert when.endswith("Z")
    assert len(when) == len("2026-01-31T12:00:00.123Z")
    assert rest == "info tests.runtime.log tree_assigned tree_id=4f1c epoch=2"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("", "''"),
        ("two words", "'two words'"),
        ("a=b", "'a=b'"),
        ('say "x"', "'say \"x\"'"),
        ("it's", '"it\'s"'),
        ("two\nlines", r"'two\nlines'"),
        ("\x1b[31m", r"'\x1b[31m'"),
        ("\r\u2028", r"'\r\u2028'"),
        ("naïve", "naïve"),
        (None, "None"),
    ],
)
def test_a_value_cannot_start_a_field_or_a_line(
    log: EventLogger, lines: list[str], value: object, written: str
) -> None:
    log.warning("seen", value=value)

    assert lines[0].endswith(f" seen value={written}")
    assert len(lines[0].splitlines()) == 1


def test_a_field_may_be_called_event(log: EventLogger, lines: list[str]) -> None:
    log.error("dropped", event="node")

    assert lines[0].endswith(" dropped event=node")


def test_exception_adds_the_traceback_and_debug_is_silent(log: EventLogger, lines: list[str]) -> None:
    log.debug("not_shown")
    try:
        raise ValueError("cause")
    except ValueError:
        log.exception("failed", tree_id="4f1c")

    assert len(lines) == 1
    assert "failed tree_id=4f1c\nTraceback" in lines[0]
    assert lines[0].endswith("ValueError: cause")


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The root logger; what is set on it is taken back."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    return root


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.INFO),
        ("warning", logging.WARNING),
        ("error", logging.ERROR),
    ],
)
def test_the_level_is_set_for_all_loggers(root: logging.Logger, level: str, expected: int) -> None:
    setup_logging(level)

    assert root.getEffectiveLevel() == expected


def written_as_json(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_lines_have_the_same_fields(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("info", "json")
    log = EventLogger("tests.runtime.json")

    log.info("tree_assigned", tree_id="4f1c", epoch=2, share=0.5, retry=False, worker=None)
    log.debug("not_shown")

    (line,) = written_as_json(capsys)
    when = line.pop("time")
    assert when.endswith("Z")
    assert len(when) == len("2026-01-31T12:00:00.123Z")
    assert line == {
        "level": "info",
        "logger": "tests.runtime.json",
        "event": "tree_assigned",
        "fields": {"tree_id": "4f1c", "epoch": 2, "share": 0.5, "retry": False, "worker": None},
    }


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("two\nlines", "two\nlines"),
        ("\u2028 \x00 \ud800", "\u2028 \x00 \ud800"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (ValueError("why"), "why"),
        ({"a": 1}, "{'a': 1}"),
    ],
)
def test_every_value_makes_one_line_of_json(
    root: logging.Logger, capsys: pytest.CaptureFixture[str], value: object, written: str
) -> None:
    setup_logging("info", "json")

    # a field may have the name of a key of the line
    EventLogger("tests.runtime.json").warning("seen", time=value, level="x")

    (line,) = written_as_json(capsys)
    assert line["fields"] == {"time": written, "level": "x"}
    assert line["level"] == "warning"


def test_a_traceback_is_in_its_line(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("info", "json")
    try:
        raise ValueError("cause")
    except ValueError:
        EventLogger("tests.runtime.json").exception("failed", tree_id="4f1c")

    (line,) = written_as_json(capsys)
    assert line["event"] == "failed"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: cause")


def test_lines_of_libraries_are_json_too(root: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("info", "json")

    logging.getLogger("a.library").warning("%d of %d", 1, 2)

    (line,) = written_as_json(capsys)
    assert (line["logger"], line["event"], line["fields"]) == ("a.library", "1 of 2", {})
