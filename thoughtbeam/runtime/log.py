"""Structured logs: one line per event, `key=value` or JSON. Never a prompt or an answer at INFO."""

from __future__ import annotations

import json
import logging
import math
import sys
import time


class KeyValueFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info gateway.dispatcher tree_assigned tree_id=… worker=…`"""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_when(record)} {record.levelname.lower()} {record.name} {record.getMessage()}"
        line += "".join(f" {key}={_quote(value)}" for key, value in _fields(record).items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """`{"time": …, "level": "info", "logger": …, "event": …, "fields": {…}}`, an exception under "exception".

    A field that is no number, boolean or null is a string.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _when(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            "fields": {key: _plain(value) for key, value in _fields(record).items()},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _when(record: logging.LogRecord) -> str:
    # cut, not rounded: 1000 milliseconds are none
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, int)):
        return value
    # JSON has no NaN
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def _quote(value: object) -> str:
    # a value from outside must not be able to start a line or a field of its own
    text = str(value)
    plain = text and text.isprintable() and not any(c in text for c in " \"'=")
    return text if plain else repr(text)


class EventLogger:
    """Logs events, not sentences: `log.info("tree_assigned", tree_id=t, worker=w)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, /, **fields: object) -> None:
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, /, **fields: object) -> None:
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, /, **fields: object) -> None:
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, /, **fields: object) -> None:
        self._logger.error(event, extra={"fields": fields})

    def exception(self, event: str, /, **fields: object) -> None:
        """An error with the traceback of the exception being handled."""
        self._logger.exception(event, extra={"fields": fields})


def setup_logging(level: str = "info", form: str = "text") -> None:
    """Sends all logs from `level` on to stderr. form: `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter({"text": KeyValueFormatter, "json": JsonFormatter}[form]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
