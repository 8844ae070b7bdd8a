"""Structured logs: one line per event, and no value can forge another."""

from __future__ import annotations

import logging

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


@pytest.mark.parametrize(
    ("argument", "environment", "level"),
    [("debug", "ERROR", logging.DEBUG), (None, "error", logging.ERROR), (None, None, logging.INFO)],
)
def test_the_level_is_the_argument_else_the_environment_else_info(
    monkeypatch: pytest.MonkeyPatch, argument: str | None, environment: str | None, level: int
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", root.handlers[:])
    monkeypatch.setattr(root, "level", root.level)
    if environment is None:
        monkeypatch.delenv("THOUGHTBEAM_LOG_LEVEL", raising=False)
    else:
        monkeypatch.setenv("THOUGHTBEAM_LOG_LEVEL", environment)

    setup_logging(argument)

    assert root.getEffectiveLevel() == level
