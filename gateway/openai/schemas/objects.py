"""How many properties an object may have, in the forms that guides count in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.openai.schemas.walk import NoValueError


def counted(guide: dict[str, Any], limits: Mapping[str, int], path: str, *, any_choice: bool) -> str | None:
    """Add ``minProperties`` and ``maxProperties`` to the guide of an object.

    Args:
        guide: has what else the schema says; changed in place.
        limits: ``minProperties`` and ``maxProperties``, where the schema has them.
        path: of the schema.
        any_choice: whether the engine counts whatever is left to choose; llguidance does one property of those that
            are named, or any number where the named ones are all required.

    Returns:
        The keyword that the engine cannot count by, and which is left out; None where nothing is.

    Raises:
        NoValueError: no object has such a number.
    """
    required = set(guide.get("required", ()))
    named = guide.get("properties", {})
    closed = guide.get("additionalProperties") is False and "patternProperties" not in guide
    least, most = limits.get("minProperties", 0), limits.get("maxProperties")
    if (closed and least > len(named)) or (most is not None and max(least, len(required)) > most):
        raise NoValueError(f"{path}.{'minProperties' if most is None else 'maxProperties'}")
    if most is not None and most == len(required):
        guide.pop("patternProperties", None)
        guide["properties"] = {name: part for name, part in named.items() if name in required}
        guide["additionalProperties"] = False
        if not guide["properties"]:
            del guide["properties"]
        return None
    needed = {"minProperties": least} if least > len(required) else {}
    if most is not None and not (closed and most >= len(named)):
        needed["maxProperties"] = most
    optional = [name for name in named if name not in required]
    if needed and optional and not any_choice and not (closed and _one_choice(needed, len(required))):
        return next(iter(needed))
    guide |= needed
    return None


def _one_choice(limits: dict[str, int], required: int) -> bool:
    return limits.get("minProperties", 0) <= required + 1 and limits.get("maxProperties", required + 1) == required + 1
