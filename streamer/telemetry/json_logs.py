"""Logs as one JSON object a line: time, level, event, logger, the bound keys and the extras.

Events are fixed phrases with keys beside them; no payload text ever goes in. Errors are shown with
their type and stack, and with their message when it is one of ours.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import orjson

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def told(error: BaseException) -> str:
    """Type and message; of errors that are not ours or the client's only the type.

    Foreign messages may repeat what they choked on, and that may be somebody's text.
    """
    name = type(error).__name__
    ours = type(error).__module__.partition(".")[0] in ("streamer", "cimpl", "confluent_kafka")
    return f"{name}: {error}" if ours or isinstance(error, (OSError, AssertionError)) else name


class JsonFormatter(logging.Formatter):
    """One line a record.

    Args:
        bound: keys that every line carries, e.g. role and slot.
    """

    def __init__(self, bound: Mapping[str, Any]) -> None:
        super().__init__()
        self._bound = dict(bound)

    def format(self, record: logging.LogRecord) -> str:
        """The JSON text of a record."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": at,
            "level": record.levelname,
            "event": record.getMessage(),
            "logger": record.name,
            **self._bound,
        }
        line.update({k: v for k, v in vars(record).items() if k not in _STANDARD})
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            line["error"] = told(error)
            line["stack"] = traceback.format_tb(error.__traceback__)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def start_logs(level: str, *, stream: TextIO | None = None, **bound: Any) -> None:
    """Send everything the process logs to ``stream`` (standard error) in this form."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(bound))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
