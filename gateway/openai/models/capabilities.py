"""The capability map of a model: for every parameter what it is, how it is served, and why or why not."""

from __future__ import annotations

from typing import Literal

from gateway.generation import Capability
from gateway.openai.models.objects import ParameterCapability
from gateway.openai.parameters.row import Parameter
from gateway.openai.parameters.table import PARAMETERS, served
from gateway.serving.served_model import ServedModel


def capability_map(model: ServedModel) -> dict[str, ParameterCapability] | None:
    """By name of a parameter ``class``, ``how``, ``note`` and ``limit``; None before the engine was discovered.

    A parameter that means different things in chat and in completions has the entry of chat, and one that is named
    ``completions.NAME``. What is no parameter but known of the engine, such as ``cached_tokens``, is there too.
    """
    if model.features is None:
        return None
    known = model.capabilities
    found: dict[str, ParameterCapability] = {}
    for row in sorted(PARAMETERS, key=lambda row: "chat" not in row.endpoints):
        how = served(row, known)
        name = row.name if row.name not in found else f"{row.endpoints[0]}.{row.name}"
        found[name] = {"class": _class(row, how), "how": how.how, "note": how.note}
        if how.limit is not None:
            found[name]["limit"] = how.limit
    for name, how in known.items():
        if name not in found:
            found[name] = {"class": "output", "how": how.how, "note": how.note}
    return found


def _class(row: Parameter, how: Capability) -> Literal["annotation", "impossible", "engine"]:
    if row.kind == "annotation":
        return "annotation"
    return "impossible" if how.how == "impossible" else "engine"
