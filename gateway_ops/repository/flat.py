"""Any protobuf message as flat names and texts, whatever fields it has."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any


def flat_fields(message: Any, path: str, but: Collection[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """The fields of a message that are set, by their names from the outside in, each with its value as text.

    Args:
        message: of protobuf.
        path: in front of the names, with a blank behind it where it is not empty.
        but: names of fields of this message that do not count.
    """
    for field, value in message.ListFields():
        if field.name in but:
            continue
        where = f"{path}{field.name}"
        if field.message_type is None:
            yield where, _text(field, value)
        elif field.message_type.GetOptions().map_entry:
            for key in sorted(value):
                yield from _entry(f"{where} {key}", value[key])
        elif _is_repeated(field):
            for number, item in enumerate(value, 1):
                yield from _entry(f"{where} {number}", item)
        else:
            yield from _entry(where, value)


def _entry(where: str, value: Any) -> Iterator[tuple[str, str]]:
    """A message, or a plain value of a map; a message without fields is there all the same."""
    if not hasattr(value, "ListFields"):
        yield where, str(value)
        return
    yield from list(flat_fields(value, f"{where} ")) or [(where, "there")]


def _text(field: Any, value: Any) -> str:
    values = [_one(field, one) for one in value] if _is_repeated(field) else _one(field, value)
    return values if isinstance(values, str) else f"[{', '.join(values)}]"


def _one(field: Any, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)
