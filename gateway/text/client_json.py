"""Writes JSON values that a client sent, including integers that orjson does not write."""

from __future__ import annotations

import json
from typing import Any

import orjson


def write_client_json(value: Any) -> bytes:
    """Write a value that was parsed from a request's JSON, with integers beyond 64 bits and lone surrogates as well."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
