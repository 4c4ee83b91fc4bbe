"""Structured output: a guide for the engine, or a check of the finished answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.api.openai.formats import AnswerFormat
from gateway.generation import EngineFeatures
from gateway.text.bad_request import BadRequestError
from gateway.text.guides.checked import checker, is_object
from gateway.text.guides.guide import Guide


@dataclass(frozen=True, slots=True)
class Structure:
    """The method by which an answer gets the required format.

    Attributes:
        guide: constrains the engine; None without a guide.
        fits: checks the finished answer; None where the guide guarantees the format, or none is required.
        field: the request's field with the format.
        path: path of the format in the request.
    """

    guide: Guide | None = None
    fits: Callable[[str], bool] | None = None
    field: str = ""
    path: str = ""


ANY_TEXT = Structure()


def structure(required: AnswerFormat | None, features: EngineFeatures, *, validate: bool) -> Structure:
    """Choose how to enforce or check the required format.

    Args:
        required: the required format; None for any text.
        features: features of the engine.
        validate: whether the operator has finished answers checked where they cannot be guided.

    Raises:
        BadRequestError: naming the field, or the keyword of a schema, that cannot be enforced.
    """
    if required is None:
        return ANY_TEXT
    guide = required.guide(features.guide_types, features.guide_backend)
    if guide is not None:
        return Structure(guide, field=required.field, path=required.path)
    if validate and required.checkable:
        return Structure(fits=_check(required), field=required.field, path=required.path)
    kinds = ", ".join(sorted(features.guide_types))
    has = f"its engine supports only guides of the kinds {kinds}" if kinds else "its engine has no guided decoding"
    raise BadRequestError(
        f"This model does not support '{required.path}': {has}. Describe the format in a message and check the answer.",
        param=required.path,
        code="unsupported_parameter",
    )


def _check(required: AnswerFormat) -> Callable[[str], bool]:
    if required.kind == "json_schema":
        return checker(required.value, required.path)
    if required.kind == "choice":
        return frozenset(required.value).__contains__
    return is_object
