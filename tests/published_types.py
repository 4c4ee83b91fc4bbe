"""Answers against the types that OpenAI and Anthropic publish with their SDKs, strictly and without further fields."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter

_Model = TypeVar("_Model", bound=BaseModel)


def published(kind: type[_Model], data: Any, ours: Collection[str] = ()) -> _Model:
    """An answer as its published type; fails where a field is missing, of another type, or one that the type lacks.

    Args:
        kind: a model of an SDK.
        data: the parsed JSON.
        ours: fields that the gateway adds and documents, and parts that repeat what the client sent, by their paths;
            without indices, such as ``output.content``.
    """
    made: _Model = _adapter(kind).validate_json(json.dumps(data), strict=True)
    more = {path for path in _unknown(made, "") if not any(path == own or path.startswith(f"{own}.") for own in ours)}
    assert more == set(), f"{kind.__name__} has no {', '.join(sorted(more))}"
    return made


@functools.cache
def _adapter(kind: type[BaseModel]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)  # to build one takes a tenth of a second for the larger types


def _unknown(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{path}.{name}".lstrip(".") for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from _unknown(getattr(value, name), f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for each in value:
            yield from _unknown(each, path)
