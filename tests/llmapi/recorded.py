"""The recorded signatures of TensorRT-LLM, as something that calls can be checked against."""

from __future__ import annotations

import json
import os
import types
import typing
from datetime import timedelta
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Union  # noqa: UP035 - names in recorded annotations

VERSION = os.environ.get("STANDIN_SIGNATURES", "1.2.1")
"""What is meant where no version is named."""
RELEASES = {"1.0.0": "1.0.0", "1.2.1": "1.2.1", "main": "1.3.0rc26"}
"""What each recorded version calls itself."""

BINDINGS = "1.2.1"
"""The version whose bindings of C++ are recorded; the others have the same names."""

TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("signatures.json").read_text(encoding="utf-8"))
# What annotations are read with; one that names anything else is not checked.
NAMES: dict[str, Any] = {"Any": Any, "Dict": Dict, "List": List, "Literal": Literal}  # noqa: UP006
NAMES |= {
    "timedelta": timedelta, "Optional": Optional, "Union": Union, "int": int, "float": float, "str": str, "bool": bool,
    "Path": Path,
}  # fmt: skip


class SignatureError(TypeError):
    """A call that the recorded signature does not allow."""


def parameters(name: str, version: str = VERSION) -> dict[str, Any]:
    """Parameters of a recorded class or method."""
    recorded: dict[str, Any] = TABLE[version]["signatures"][name]["parameters"]
    return recorded


def default(parameter: dict[str, Any]) -> Any:
    """The default of a parameter where it is a literal, else None."""
    text = parameter.get("default", "None")
    return None if "(" in text or "." in text.lstrip("-0123456789") else eval(text, {})


def check_call(name: str, arguments: dict[str, Any], version: str = VERSION) -> None:
    """Check keyword arguments: every name is known, every required one given, every type right where it is known.

    Raises:
        SignatureError: the recorded signature does not allow the call.
    """
    known = parameters(name, version)
    for argument, value in arguments.items():
        if argument not in known:
            raise SignatureError(f"{name} {version} has no parameter {argument}")
        if not fits(value, known[argument].get("type", "Any")):
            raise SignatureError(f"{name} {version}: {argument} is {value!r}, not {known[argument]['type']}")
    for parameter, entry in known.items():
        if "default" not in entry and not parameter.startswith("**") and parameter not in arguments:
            raise SignatureError(f"{name} {version}: {parameter} is missing")


def fits(value: Any, annotation: str) -> bool:
    """Whether a value has the type of an annotation; true where the annotation names what is not known here."""
    try:
        kind = eval(annotation, dict(NAMES))
    except (NameError, AttributeError):
        return True
    return _is(value, kind)


def _is(value: Any, kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_is(value, one) for one in inner)
    if origin is Literal:
        return value in inner
    if origin is list:
        return isinstance(value, list) and all(_is(one, inner[0]) for one in value)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, origin or kind)
