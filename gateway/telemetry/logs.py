"""Logging as JSON lines on standard error: one object per record, no prompt text, no keys."""

from __future__ import annotations

from typing import Any

from pythonjsonlogger.core import RESERVED_ATTRS


def logging_config(level: str) -> dict[str, Any]:
    """A ``logging.config.dictConfig`` dictionary that sends everything through one JSON handler.

    Args:
        level: least severe level that is logged: debug, info, warning or error.
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {
                "()": "pythonjsonlogger.json.JsonFormatter",
                "fmt": "%(asctime)s %(levelname)s %(name)s %(message)s",
                "datefmt": "%Y-%m-%dT%H:%M:%S%z",
                "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
                "json_ensure_ascii": False,
                "reserved_attrs": [*RESERVED_ATTRS, "color_message"],  # uvicorn's message again, for terminals
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
        "root": {"handlers": ["stderr"], "level": level.upper()},
        "loggers": {
            "uvicorn": {"handlers": [], "level": level.upper(), "propagate": True},
            # Our own access log says more; uvicorn's would say it twice.
            "uvicorn.access": {"handlers": [], "level": "WARNING", "propagate": False},
        },
    }
