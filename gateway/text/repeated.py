"""JSON of what a client sent, which may hold numbers that orjson does not write."""

from __future__ import annotations

import json
from typing import Any

import orjson


def repeated(value: Any) -> bytes:
    """Write a value that was parsed of a request's JSON, integers beyond 64 bits too."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
