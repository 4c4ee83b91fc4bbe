"""Null in a request: it means absent, but for places where it is a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def without_nulls(data: Mapping[str, Any]) -> dict[str, Any]:
    """Null means absent: in the request and in objects of its own; never inside a schema, where it is a value."""
    data = {key: value for key, value in data.items() if value is not None}
    for key in ("stream_options", "structured_outputs", "prediction"):
        data |= {key: pruned(data[key])} if key in data else {}
    if isinstance(data.get("response_format"), dict):
        data["response_format"] = pruned_inside(data["response_format"], "json_schema")
    return data


def pruned(value: Any) -> Any:
    """An object without its nulls; anything else as it is."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def pruned_inside(value: Any, key: str) -> Any:
    """An object without its nulls and without those of the object under ``key``."""
    value = pruned(value)
    return {**value, key: pruned(value[key])} if isinstance(value, dict) and key in value else value
