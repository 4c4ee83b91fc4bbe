"""JSON logs on standard error: one object per record, without prompt texts and keys.

A line has a request's id only where its logger call adds ``cause()``. Lines do not get the id by their task, because a
task that one request begins, such as a connection to Triton, later logs for other requests.
"""

from __future__ import annotations

import contextvars
import logging
import logging.config
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from pythonjsonlogger.core import RESERVED_ATTRS, LogData
from pythonjsonlogger.json import JsonFormatter

from gateway.telemetry.cooldown import Cooldown
from gateway.telemetry.traces import TraceIds
from gateway.text.harmless import harmless_json

_REQUEST_ID: Final = contextvars.ContextVar("request_id", default="")


work_for: Final[Callable[[str], object]] = _REQUEST_ID.set
"""Notes the request that this task works for, and all that begin in it.

It is not taken back: each request has a task of its own, in which the server logs a defect after its end.
"""


def cause() -> dict[str, str]:
    """Make the field ``request_id`` of a log line that the request causes; empty without a request."""
    request_id = _REQUEST_ID.get()
    return {"request_id": request_id} if request_id else {}


_FACTS: Final = "_facts"  # a field of a record: all fields of its line other than the usual ones
# Values that orjson would write in its own way are left to Python's encoder, which knows more types.
_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_RESERVED = frozenset({*RESERVED_ATTRS, "color_message"})  # of uvicorn, its message again, for terminals


def log_facts(logger: logging.Logger, level: int, message: str, facts: Mapping[str, Any]) -> None:
    """Log a record as ``logger.log`` with ``extra`` does, in half the time because it looks for no caller.

    Args:
        logger: the logger.
        level: level of the record.
        message: message without placeholders.
        facts: fields of the record; None leaves a field out, and names of standard fields are not allowed.
    """
    if logger.isEnabledFor(level):
        facts = {name: value for name, value in facts.items() if value is not None}
        record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
        record.__dict__.update(facts)
        record.__dict__[_FACTS] = facts
        logger.handle(record)


class LineFormatter(JsonFormatter):
    """Formats a record as one line of JSON, by orjson where its values are plain, because it runs for each request."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as the base does, in a quarter of the time where its values are plain."""
        if record.exc_info or record.exc_text or record.stack_info or not isinstance(record.msg, str):
            if record.name == "uvicorn.error":  # of a defect, whose client got this id
                record.__dict__.update(cause())
            return super().format(record)
        line: LogData = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = record.__dict__
        if _FACTS in fields:
            line |= fields[_FACTS]
            if "trace_id" in fields:
                line["trace_id"] = fields["trace_id"]
        else:
            line |= {name: value for name, value in fields.items() if name not in _RESERVED and name[:1] != "_"}
        return self.jsonify_log_record(line)

    def jsonify_log_record(self, log_data: LogData) -> str:
        """Write the fields as JSON without characters that act upon a terminal."""
        try:
            line = orjson.dumps(log_data, option=_PLAIN).decode()
        except orjson.JSONEncodeError:  # an object, half a surrogate pair, an integer of more than 64 bits
            line = str(super().jsonify_log_record(log_data))
        return harmless_json(line)


class RateLimitedFilter(logging.Filter):
    """Passes each message once a minute, for example that of an unreachable collector."""

    def __init__(self, loggers: str) -> None:
        """Watch the loggers whose names begin with ``loggers``."""
        super().__init__()
        self._loggers = loggers
        # By the message before its arguments, of which a library has few.
        self._passed = defaultdict[str, Cooldown](lambda: Cooldown(60.0))

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether a record passes."""
        return not record.name.startswith(self._loggers) or self._passed[str(record.msg)].due()


def set_up_logging(level: str) -> None:
    """Set up logging by ``logging_config``, without the process and thread of a record, which no line has."""
    logging.config.dictConfig(logging_config(level))
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


def logging_config(level: str) -> dict[str, Any]:
    """Make a ``logging.config.dictConfig`` dictionary that sends everything through one JSON handler.

    Args:
        level: least severe level that is logged: debug, info, warning or error.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": LineFormatter,
                "fmt": "%(asctime)s %(levelname)s %(name)s %(message)s",
                "datefmt": "%Y-%m-%dT%H:%M:%S%z",
                "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
                "json_ensure_ascii": False,
                "reserved_attrs": _RESERVED,
            }
        },
        "filters": {"trace": {"()": TraceIds}, "rate_limited": {"()": RateLimitedFilter, "loggers": "opentelemetry."}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                "filters": ["trace", "rate_limited"],
                "stream": "ext://sys.stderr",
            }
        },
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {
            "uvicorn": {"handlers": [], "level": level.upper(), "propagate": True},
            # Our own access log says more; uvicorn's would say it twice.
            "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": False},
        },
    }
