"""Settings without secrets: values that may be secret are hidden."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr

HIDDEN = "(hidden)"
# Strings that show what is served, and how; of paths only the last part is shown.
_SHOWN = frozenset({"name", "triton.model", "family", "engine_version", "tokenizer", "template"})
_MODELS = "models."


def shown_settings(settings: BaseModel) -> dict[str, Any]:
    """Show numbers, switches and fixed words of settings; of other values whether they are set."""
    return _model(settings, "")


def _model(model: BaseModel, place: str) -> dict[str, Any]:
    fields = type(model).model_fields
    return {name: _value(value, fields[name].annotation, f"{place}{name}") for name, value in model if name in fields}


def _value(value: Any, annotation: Any, place: str) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, BaseModel):
        return _model(value, f"{place}.")
    if isinstance(value, list | tuple):
        return [_value(each, None, place) for each in value]
    if isinstance(value, Mapping):
        return {HIDDEN: len(value)} if value else {}
    return _words(value, annotation, place)


def _words(value: Any, annotation: Any, place: str) -> str:
    if isinstance(value, str) and value in _choices(annotation):
        return value
    known = place.startswith(_MODELS) and place.removeprefix(_MODELS) in _SHOWN
    return Path(value).name if known else HIDDEN


def _choices(annotation: Any) -> set[str]:
    """The words of a fixed choice; of an annotation such as ``Literal["a", "b"] | None``."""
    if get_origin(annotation) is Literal:
        return {each for each in get_args(annotation) if isinstance(each, str)}
    return set().union(*map(_choices, get_args(annotation)))


def secrets_of(value: Any) -> Iterator[str]:
    """Collect every secret of settings, so that it can be removed from other texts."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for _, each in value:
            yield from secrets_of(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from secrets_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from secrets_of(each)
