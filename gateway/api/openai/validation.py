"""Validation of request bodies by pydantic, with OpenAI's errors.

Error paths leave out the marks of branches, which are not part of what the client wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, ValidationError

from gateway.text.bad_request import BadRequestError

BRANCH = "~"
Model = TypeVar("Model", bound=BaseModel)


class RequestPart(BaseModel):
    """An object of a request: types are strict, and fields that it does not know are kept, to be named."""

    model_config = ConfigDict(extra="allow", strict=True)


def text_or_list(value: Any) -> str | None:
    """Discriminate between a string and an array."""
    return BRANCH + "parts" if isinstance(value, list) else BRANCH + "text" if isinstance(value, str) else None


def branch_by(name: str) -> Callable[[Any], str | None]:
    """Make a discriminator that reads one key and marks its value as a branch."""

    def read(value: Any) -> str | None:
        found = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return BRANCH + found if isinstance(found, str) else None

    return read


def _function_or_custom(value: Any) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return BRANCH + ("custom" if kind == "custom" else "function") if isinstance(value, dict | BaseModel) else None


FUNCTION_OR_CUSTOM = Discriminator(
    _function_or_custom, custom_error_type="choice", custom_error_message="must be an object"
)
"""Distinguishes custom tools from functions, and has other types rejected as functions."""


def without_nulls(data: Mapping[str, Any]) -> dict[str, Any]:
    """Remove nulls, which mean absent, from a request and its own objects; schemas keep their nulls."""
    data = {key: value for key, value in data.items() if value is not None}
    for key in ("stream_options", "structured_outputs", "prediction"):
        data |= {key: pruned(data[key])} if key in data else {}
    if isinstance(data.get("response_format"), dict):
        data["response_format"] = pruned_inside(data["response_format"], "json_schema")
    return data


def pruned(value: Any) -> Any:
    """Copy an object without its nulls; other values stay."""
    if not isinstance(value, dict) or None not in value.values():
        return value
    return {key: item for key, item in value.items() if item is not None}


def pruned_inside(value: Any, key: str) -> Any:
    """Copy an object without its nulls and without the nulls of the object under ``key``."""
    value = pruned(value)
    if not isinstance(value, dict) or key not in value or (inside := pruned(value[key])) is value[key]:
        return value
    return {**value, key: inside}


def validated(kind: type[Model], data: Mapping[str, Any]) -> Model:
    """Validate the fields of a request.

    Args:
        kind: of the request.
        data: its fields, by name.

    Raises:
        BadRequestError: naming the field at fault.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise error_of(error) from None


# How pydantic names branches of a union without a discriminator, and the gateway's own classes in its sentences.
_UNION = re.compile(r"(?:dict|list)\[")
_CLASS = re.compile(r" or instance of \w+$")


def error_of(error: ValidationError) -> BadRequestError:
    """Make the error of a request's first validation fault."""
    finding = error.errors(include_url=False)[0]
    return _answer(finding)


def param_of(location: Sequence[int | str]) -> str:
    """Write a location in OpenAI's form, such as ``messages[0].content``."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part != "[key]" and not part.startswith(BRANCH) and not _UNION.match(part):
            path += f".{part}" if path else part
    return path[:256]


def _answer(finding: Any) -> BadRequestError:
    kind, given = finding["type"], finding["input"]
    param = param_of(finding["loc"])
    if kind == "missing":
        return _missing(param)
    if kind == "literal_error" and _TOOLS & set(finding["loc"]) and finding["ctx"]["expected"] == "'function'":
        message = f"Invalid value for '{param}': input should be 'function' or 'custom'."
        return BadRequestError(message, param=param, code="invalid_value")
    if kind in {"role", "content_part"}:
        return _unknown_branch(kind, param, given, finding["msg"])
    if kind == "too_long":
        return _too_long(param, finding["ctx"])
    if kind == "too_short" and finding["ctx"]["actual_length"] == 0:
        return BadRequestError(f"Invalid value for '{param}': must not be empty.", param=param, code=_RANGE[kind])
    if kind in _RANGE:
        code = _RANGE[kind]
        if any(isinstance(bound, float) for bound in finding.get("ctx", {}).values()):
            code = code.replace("integer", "decimal")
    else:
        code = "invalid_type" if kind.endswith("_type") or kind in _OTHER_TYPES else "invalid_value"
    wrong = "type" if code == "invalid_type" else "value"
    return BadRequestError(f"Invalid {wrong} for '{param}': {_lower(finding['msg'])}.", param=param, code=code)


_TOOLS = frozenset({"tools", "tool_choice", "tool_calls"})
# Pydantic's names of findings -> OpenAI's codes.
_RANGE = {
    "greater_than_equal": "integer_below_min_value",
    "less_than_equal": "integer_above_max_value",
    "less_than": "integer_above_max_value",
    "too_short": "empty_array",
    "string_too_short": "empty_string",
    "string_too_long": "string_above_max_length",
}
_OTHER_TYPES = frozenset({"content", "stop", "choice", "int_from_float", "model_attributes_type"})


def _unknown_branch(kind: str, param: str, given: Any, message: str) -> BadRequestError:
    key = "role" if kind == "role" else "type"
    if not isinstance(given, dict):
        return BadRequestError(f"Invalid type for '{param}': must be an object.", param=param, code="invalid_type")
    if key not in given:
        param = f"{param}.{key}"
        return _missing(param)
    value = given[key]
    shown = repr(value[:64]) if isinstance(value, str) else type(value).__name__
    if kind == "role":
        param = f"{param}.role"
        return BadRequestError(f"Invalid value for '{param}': {shown}. {message}.", param=param, code="invalid_value")
    what = f"{message}: {shown}. The models of this gateway only read text."
    return BadRequestError(what, param=param, code="unsupported_content_part")


def _too_long(param: str, context: Mapping[str, Any]) -> BadRequestError:
    code = "object_above_max_properties" if context["field_type"] == "Dictionary" else "array_above_max_length"
    message = f"Invalid value for '{param}': must have at most {context['max_length']} items."
    return BadRequestError(message, param=param, code=code)


def _missing(param: str) -> BadRequestError:
    return BadRequestError(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")


def _lower(message: str) -> str:
    message = _CLASS.sub("", message)
    return message[0].lower() + message[1:]
