"""Writes recorded facts as JSON with a row for each innermost object."""

from __future__ import annotations

import json
from typing import Any


def in_rows(value: Any, indent: int = 0) -> str:
    """JSON in which an object whose values hold no objects stands on one line."""
    if not isinstance(value, dict) or not any(isinstance(inner, dict) for inner in value.values()):
        return json.dumps(value)
    margin = " " * (indent + 1)
    rows = [f"{margin}{json.dumps(key)}: {in_rows(inner, indent + 1)}" for key, inner in value.items()]
    return "{\n" + ",\n".join(rows) + "\n" + " " * indent + "}"
