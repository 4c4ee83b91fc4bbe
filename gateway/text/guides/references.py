"""References of schemas: JSON pointers from the root, their targets, and references without a finite value."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from gateway.text.guides.keywords import NAMED, Schema, children, implied, types_of

_DATA = frozenset({"const", "enum", "default", "example", "examples"})
_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$schema")
_MOST_PASSES = 20  # over all references; two are enough for most schemas


def localized(schema: Schema) -> Schema:
    """Rewrite the references of a schema as JSON pointers from its root, and leave out ids and anchors.

    Relative references count from the nearest ``$id`` (JSON Schema 2020-12, 8.2; ``id`` in draft 4). A reference that
    is only valid from the root, because its author forgot an ``$id`` on the way, is read from the root. A reference
    without a target here stays as it is.

    Args:
        schema: any JSON object; it need not be well-formed.
    """
    if _Places(schema).plain:
        return schema
    root = copy.deepcopy(schema)
    places = _Places(root)
    pointers = [places.pointer(part.get("$ref"), base) for part, base in places.schemas]
    for (part, _), pointer in zip(places.schemas, pointers, strict=True):
        for name in _NAMES:
            if isinstance(part.get(name), str) and (name != "id" or places.old):
                del part[name]
        if "$ref" in part:
            part["$ref"] = pointer
    return root


class _Places:
    """Pointers to the resources and anchors of a schema, by address."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self.old = "draft-04" in str(root.get("$schema"))
        self._resources: dict[str, str] = {"": ""}
        self._anchors: dict[tuple[str, str], str] = {}
        self.schemas: list[tuple[dict[str, Any], str]] = []  # each with its base address
        self.plain = True
        self._read(root, "", "")

    def _read(self, value: Any, base: str, pointer: str) -> None:
        """Note the names of a value, where it is a schema, and of those inside of it."""
        if isinstance(value, dict):
            base = self._named(value, base, pointer)
            self.schemas.append((value, base))
            reference = value.get("$ref")
            if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
                self.plain = False
        for steps, part in _parts(value):
            self._read(part, base, pointer + steps)

    def _named(self, schema: Schema, base: str, pointer: str) -> str:
        """Note the names of a schema; return the base address inside of it."""
        stated = schema.get("$id", schema.get("id") if self.old else None)
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

    def pointer(self, reference: Any, base: str) -> Any:
        """Return the pointer that a reference stands for; itself where it refers to nothing here."""
        if not isinstance(reference, str):
            return reference
        address, name = _joined(base, reference)
        found = None
        if not name or name.startswith("/"):
            if address in self._resources:
                found = f"#{self._resources[address]}{name}"
        elif (address, unquote(name)) in self._anchors:
            found = f"#{self._anchors[address, unquote(name)]}"
        if found is None:
            return reference
        try:
            resolve(self._root, found)
        except LookupError:
            return reference
        return found


def _joined(base: str, reference: str) -> tuple[str, str]:
    """Return the address that a reference means, and the name behind it."""
    if reference.startswith("#"):  # urljoin does not know the schemes that have no path, such as urn
        return base, reference[1:]
    try:
        address, name = urldefrag(urljoin(base, reference))
    except ValueError:  # not an address
        return reference, ""
    return address, name


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Give each value inside that may be a schema, with the steps of a JSON pointer to it."""
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


def resolve(root: Schema, reference: str) -> Any:
    """Find the target of a reference of the form ``#/$defs/Place``.

    Raises:
        LookupError: the reference has no target here.
    """
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        raise LookupError(reference)
    found: Any = root
    for part in reference[2:].split("/"):
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found[key if key in found else unquote(key)]
        elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise LookupError(reference)
    return found


def followed(root: Schema, schema: Any) -> Any:
    """Follow a chain of references to a schema; chains of a checked schema end."""
    while isinstance(schema, dict) and "$ref" in schema:
        schema = resolve(root, schema["$ref"])
    return schema


def endless(root: Schema) -> frozenset[str]:
    """Find the references of a well-formed schema that no finite value fits; none where that takes too long."""
    left = dict.fromkeys(_references(root))
    finite: set[str] = set()
    for _ in range(_MOST_PASSES):
        found = [reference for reference in reversed(left) if _ends(resolve(root, reference), finite)]
        if not found:
            return frozenset(left)
        finite.update(found)
        left = {reference: None for reference in reversed(left) if reference not in finite}
    return frozenset()


def _references(root: Schema) -> Iterator[str]:
    """Give the references that can be reached, each as often as it is written."""
    waiting: list[Any] = [root]
    seen: set[str] = set()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, Mapping):
            continue
        waiting += [part for _, part in children(schema, "")]
        if "$ref" in schema:
            yield schema["$ref"]
            if schema["$ref"] not in seen:
                seen.add(schema["$ref"])
                waiting.append(resolve(root, schema["$ref"]))


def _ends(schema: Any, finite: set[str], outer: tuple[str, ...] = ()) -> bool:
    """Tell whether a schema may have a finite value, given references that do."""
    if not isinstance(schema, Mapping) or "const" in schema or "enum" in schema:
        return True
    kinds = types_of(schema) or outer
    if "$ref" in schema and schema["$ref"] not in finite and set(kinds) <= {"object", "array"}:
        return False
    if not all(_ends(part, finite, kinds) for part in schema.get("allOf", ())):
        return False
    for form in ("anyOf", "oneOf"):
        if form in schema and not any(_ends(part, finite, kinds) for part in schema[form]):
            return False
    kinds = kinds or implied(schema)
    return not kinds or any(_kind_ends(schema, kind, finite) for kind in kinds)


def _kind_ends(schema: Schema, kind: str, finite: set[str]) -> bool:
    if kind == "object":
        named = schema.get("properties", {})
        return all(_ends(named[name], finite) for name in schema.get("required", ()) if name in named)
    if kind == "array" and schema.get("minItems", 0) > 0:
        first, rest = schema.get("prefixItems", []), schema.get("items", True)
        if isinstance(rest, list):
            first, rest = rest, schema.get("additionalItems", True)
        least = int(schema["minItems"])
        return all(_ends(part, finite) for part in first[:least]) and (least <= len(first) or _ends(rest, finite))
    return True
