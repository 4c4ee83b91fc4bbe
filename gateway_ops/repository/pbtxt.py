"""Reads and writes configurations as the text of ``config.pbtxt``."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2


def to_text(config: Any, about: str = "") -> str:
    """Write a configuration as text: one line for each tensor, map entry and parameter.

    Args:
        config: a ModelConfig.
        about: sentences for a comment at the top.
    """
    lines = [f"# {line}".rstrip() for line in about.splitlines()]
    for field, value in config.ListFields():
        if field.name == "ensemble_scheduling":
            lines.append("ensemble_scheduling {")
            for step in value.step:
                lines += ["  step {", *(f"    {line}" for line in _message_lines(step)), "  }"]
            lines.append("}")
        else:
            lines += _field_lines(field, value)
    return "\n".join(lines) + "\n"


def _message_lines(message: Any) -> list[str]:
    return [line for field, value in message.ListFields() for line in _field_lines(field, value)]


def _field_lines(field: Any, value: Any) -> list[str]:
    """One line for each element of a field, written by protobuf itself."""
    parent = field.containing_type._concrete_class  # noqa: SLF001 - protobuf's own way from a descriptor to its class
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        parts: list[Any] = [{key: value[key]} for key in sorted(value)]
    else:
        parts = [[item] for item in value] if is_repeated(field) else [value]
    return [text_format.MessageToString(parent(**{field.name: part}), as_one_line=True) for part in parts]


def from_text(text: str) -> Any:
    """Parse the text of a ``config.pbtxt``.

    Raises:
        google.protobuf.text_format.ParseError: the text is not one.
    """
    try:
        return text_format.Parse(text, model_config_pb2.ModelConfig())
    except ValueError as error:  # numbers that do not fit raise it bare
        raise text_format.ParseError(str(error)) from None


def is_repeated(field: Any) -> bool:
    """Tell whether a field of a message is a list, with any version of protobuf."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)
