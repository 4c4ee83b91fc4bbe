"""References by ``$id``, ``$anchor`` and relative addresses, as JSON pointers from the root of a schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from gateway.openai.schemas.walk import NAMED, Schema, resolve

_DATA = frozenset({"const", "enum", "default", "example", "examples"})
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$schema")


def localized(schema: Schema) -> Schema:
    """The schema with its references as JSON pointers from its root, and without the names that they went by.

    Relative references count from the nearest ``$id`` (JSON Schema 2020-12, 8.2; ``id`` in draft 4). One that is a
    pointer from the root only, because its author forgot an ``$id`` on the way, is taken for that. What refers to
    nothing here stays as it is.

    Args:
        schema: any JSON object; it need not be well-formed.
    """
    places = _Places(schema)
    return schema if places.plain else places.localized()


class _Places:
    """Where the resources and anchors of a schema are, by address."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._old = "draft-04" in str(root.get("$schema"))
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self.plain = True
        self._read(root, "", "")

    def _read(self, value: Any, base: str, pointer: str) -> None:
        """Note what a schema, and those inside of it, are called."""
        if isinstance(value, Mapping):
            base = self._named(value, base, pointer)
            reference = value.get("$ref")
            if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
                self.plain = False
        for steps, part in _parts(value):
            self._read(part, base, pointer + steps)

    def _named(self, schema: Schema, base: str, pointer: str) -> str:
        """The base address inside of a schema."""
        stated = schema.get("$id", schema.get("id") if self._old else None)
        if isinstance(stated, str):
            self.plain = False
            address, name = _joined(base, stated)
            if name:  # a name within the document, before 2019-09
                self._anchors.setdefault((address, name), pointer)
            else:
                base = address
                self._resources.setdefault(base, pointer)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self.plain = False
                self._anchors.setdefault((base, schema[keyword]), pointer)
        return base

    def localized(self) -> Schema:
        """A copy of the root with pointers for references."""
        copy = self._copy(self._root, "")
        assert isinstance(copy, dict)  # noqa: S101 - of a mapping
        return copy

    def _copy(self, value: Any, base: str) -> Any:
        if isinstance(value, list):
            return [self._copy(part, base) for part in value]
        if not isinstance(value, Mapping):
            return value
        base = self._named(value, base, "")
        result: dict[str, Any] = {}
        for key, part in value.items():
            if key in _NAMES and isinstance(part, str) and (key != "id" or self._old):
                continue
            if key == "$ref" and isinstance(part, str):
                result[key] = self._pointer(part, base)
            elif key in NAMED and isinstance(part, Mapping):
                result[key] = {name: self._copy(each, base) for name, each in part.items()}
            else:
                result[key] = part if key in _DATA else self._copy(part, base)
        return result

    def _pointer(self, reference: str, base: str) -> str:
        address, name = _joined(base, reference)
        found = None
        if not name or name.startswith("/"):
            if address in self._resources:
                found = f"#{self._resources[address]}{name}"
        elif (address, unquote(name)) in self._anchors:
            found = f"#{self._anchors[address, unquote(name)]}"
        if found is None or not self._leads(found):
            return reference
        return found

    def _leads(self, pointer: str) -> bool:
        try:
            resolve(self._root, pointer)
        except LookupError:
            return False
        return True


def _joined(base: str, reference: str) -> tuple[str, str]:
    """The address that a reference means, and the name behind it."""
    if reference.startswith("#"):  # urljoin does not know the schemes that have no path, such as urn
        return base, reference[1:]
    try:
        address, name = urldefrag(urljoin(base, reference))
    except ValueError:  # it is no address
        return reference, ""
    return address, name


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Everything inside of a value that may be a schema, with the steps of a JSON pointer to it."""
    if isinstance(value, list):
        yield from ((f"/{index}", part) for index, part in enumerate(value))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            if key in NAMED and isinstance(part, Mapping):
                yield from ((f"/{_escaped(key)}/{_escaped(name)}", each) for name, each in part.items())
            elif key not in _DATA:
                yield f"/{_escaped(key)}", part


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
