"""The capability map of a model: for every parameter what it is, how it is served, and why or why not."""

from __future__ import annotations

from typing import Any

from gateway.openai.parameters import PARAMETERS, served
from gateway.serving.model import ServedModel


def capability_map(model: ServedModel) -> dict[str, dict[str, Any]] | None:
    """By name of a parameter ``class``, ``how``, ``note`` and ``limit``; None before the engine was discovered.

    A parameter that means different things in chat and in completions has the entry of chat, and one that is named
    ``completions.NAME``. What is no parameter but known of the engine, such as ``cached_tokens``, is there too.
    """
    if model.features is None:
        return None
    known = model.capabilities
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(PARAMETERS, key=lambda row: "chat" not in row.endpoints):
        how = served(row, known)
        name = row.name if row.name not in found else f"{row.endpoints[0]}.{row.name}"
        what = "annotation" if row.kind == "annotation" else "impossible" if how.how == "impossible" else "engine"
        found[name] = {"class": what, "how": how.how, "note": how.note}
        if how.limit is not None:
            found[name]["limit"] = how.limit
    for name, how in known.items():
        if name not in found:
            found[name] = {"class": "output", "how": how.how, "note": how.note}
    return found
