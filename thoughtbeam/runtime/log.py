"""Structured logs: one line per event, `key=value`. Never a prompt or an answer at INFO."""

from __future__ import annotations

import logging
import os
import sys
import time


class KeyValueFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z info gateway.dispatcher tree_assigned tree_id=… worker=…`"""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = getattr(record, "fields", {})
        line = f"{when}.{record.msecs:03.0f}Z {record.levelname.lower()} {record.name} {record.getMessage()}"
        line += "".join(f" {key}={_quote(value)}" for key, value in fields.items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


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


def setup_logging(level: str | None = None) -> None:
    """Sends all logs to stderr; the level is `level`, else THOUGHTBEAM_LOG_LEVEL, else INFO."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel((level or os.environ.get("THOUGHTBEAM_LOG_LEVEL") or "INFO").upper())
