"""Checks values against a schema: finished answers without a guide, and the schema's own constants."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from gateway.text.bad_request import BadRequestError
from gateway.text.guides.keywords import Schema, children, unsupported
from gateway.text.guides.patterns import CHECKED, INEXPRESSIBLE, STRING_FORMATS
from gateway.text.guides.references import localized

_NOTHING_ELSE: Registry[Any] = Registry()  # the default one fetches the targets of references
_UNCHECKED = (INEXPRESSIBLE | STRING_FORMATS.keys()) - CHECKED.keys()
_MOST_STEPS = 30_000  # some second
_MOST_STEPS_OF_CONSTANTS = 5_000


def checker(schema: Schema, param: str) -> Callable[[str], bool]:
    """Make a check of JSON text against a schema.

    Args:
        schema: well-formed.
        param: path of it in the request.

    Raises:
        BadRequestError: with the path of a keyword that is not checked: a format without a check, and patterns, because
            matching a client's own may take any time. The check itself raises it where it would take too long.
    """
    root = localized(schema)
    _reject_unchecked(root, param)

    def fits(text: str) -> bool:
        try:
            return _is_valid(_validator(root, param, _MOST_STEPS), json.loads(text))
        except (ValueError, RecursionError):
            return False

    return fits


class FittingConstants:
    """Finds the constants of a schema that fit its other keywords, with one bound on the work."""

    def __init__(self, root: Schema, param: str) -> None:
        """Take the root, well-formed, which references are into, and its path in the request."""
        self._root, self._param = root, param
        self._validator: Any = None

    def that_fit(self, beside: Schema, values: Sequence[Any], path: str) -> list[Any]:
        """Choose the values of ``const`` or ``enum`` that fit.

        Args:
            beside: the other keywords of the schema.
            values: the values in order.
            path: path of the schema.

        Raises:
            BadRequestError: a keyword is not checked, or the work exceeds the bound.
        """
        _reject_unchecked(beside, path)
        if self._validator is None:
            self._validator = _validator(self._root, self._param, _MOST_STEPS_OF_CONSTANTS)
        validator = self._validator.evolve(schema={**beside})
        return [value for value in values if _is_valid(validator, value)]


def _validator(root: Schema, param: str, steps: int) -> Any:
    plain = {key: part for key, part in root.items() if key != "$schema"}  # keywords of all drafts are read
    return _bounded(param, steps)(plain, format_checker=_FORMAT_CHECKER, registry=_NOTHING_ELSE)


def _is_valid(validator: Any, value: Any) -> bool:
    try:
        return bool(validator.is_valid(value))
    except (ArithmeticError, RecursionError, Unresolvable):
        return False


def _is_of_format(expression: re.Pattern[str], value: object) -> bool:
    return not isinstance(value, str) or expression.fullmatch(value) is not None


_FORMAT_CHECKER = FormatChecker(())
for _name, _expression in CHECKED.items():
    _FORMAT_CHECKER.checks(_name)(functools.partial(_is_of_format, _expression))


def _bounded(param: str, steps: int) -> Any:
    """Make a validator with a bound on its work: references can make it exponential in the size of the schema."""
    left = steps

    def counted(check: Callable[..., Any], keyword: str) -> Callable[..., Any]:
        def count(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
            nonlocal left
            items = len(instance) if isinstance(instance, list | dict) else 0
            left -= 1 + (len(value) if isinstance(value, list | dict) else 0)
            left -= items * items if keyword == "uniqueItems" else items
            if left < 0:
                message = "This schema is too complex to validate values; send a simpler schema."
                raise BadRequestError(message, param=param, code="unsupported_json_schema")
            return check(validator, value, instance, schema)

        return count

    checks = Draft202012Validator.VALIDATORS
    bounded = {keyword: counted(check, keyword) for keyword, check in checks.items()}
    return extend(Draft202012Validator, bounded)  # type: ignore[no-untyped-call]


def is_object(text: str) -> bool:
    """Tell whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _reject_unchecked(schema: Any, path: str) -> None:
    if not isinstance(schema, Mapping):
        return
    for keyword, wrong in (
        ("pattern", "pattern" in schema),
        ("patternProperties", "patternProperties" in schema),
        ("items", isinstance(schema.get("items"), list)),
        ("dependencies", bool(schema.get("dependencies"))),
        ("exclusiveMinimum", isinstance(schema.get("exclusiveMinimum"), bool)),
        ("exclusiveMaximum", isinstance(schema.get("exclusiveMaximum"), bool)),
        ("format", schema.get("format") in _UNCHECKED),
    ):
        if wrong:
            reason = (
                f"{keyword!r} with this value cannot be validated by the gateway; leave it out and check the answer"
            )
            raise unsupported(f"{path}.{keyword}", reason)
    for where, part in children(schema, path):
        _reject_unchecked(part, where)
