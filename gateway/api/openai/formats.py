"""Formats of an answer: ``response_format``, and the extensions of other servers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from gateway.api.openai.request_json import parse_body
from gateway.api.openai.validation import BRANCH, RequestPart, branch_by
from gateway.http.access.caller import caller
from gateway.text.bad_request import BadRequestError
from gateway.text.guides import check_schema, deviations, guided_schema
from gateway.text.guides.guide import Guide, GuideBackend, GuideKind
from gateway.text.guides.patterns import has_assertions

_LONGEST = 65536
GrammarText = Annotated[str, Field(min_length=1, max_length=_LONGEST)]
Choices = Annotated[list[Annotated[str, Field(min_length=1, max_length=1024)]], Field(min_length=1, max_length=1000)]
# An object whatever the keys: the one meaning on which guide backends agree.
_ANY_OBJECT = {"type": "object", "additionalProperties": True}


_GUIDES: Mapping[str, tuple[GuideKind, ...]] = {
    "json_object": ("json_schema", "json"),
    "json_schema": ("json_schema",),
    "regex": ("regex",),
    "choice": ("regex", "ebnf_grammar"),
    "grammar": ("ebnf_grammar",),
    "structural_tag": ("structural_tag",),
}
"""Kinds of guide for each form, the better first."""


class TextFormat(RequestPart):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(RequestPart):
    """Any JSON object; with a schema, as in llama.cpp's server, an object that follows it."""

    type: Literal["json_object"]
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class JsonFormat(RequestPart):
    """Extension of trtllm-serve: JSON that follows a schema."""

    type: Literal["json"]
    schema_: dict[str, Any] = Field(alias="schema")


class RegexFormat(RequestPart):
    """Extension of trtllm-serve: text that an expression matches."""

    type: Literal["regex"]
    regex: GrammarText


class EbnfFormat(RequestPart):
    """Extension of trtllm-serve: text that a grammar makes."""

    type: Literal["ebnf"]
    ebnf: GrammarText


class NamedSchema(BaseModel):
    """A schema with its name."""

    model_config = ConfigDict(extra="allow", strict=True, protected_namespaces=())

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    description: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool = False


class JsonSchemaFormat(RequestPart):
    """JSON that follows a schema; any object without one."""

    type: Literal["json_schema"]
    json_schema: NamedSchema


class StructuralTagFormat(RequestPart):
    """Extension: text in which tags hold structured parts; the other fields are xgrammar's."""

    type: Literal["structural_tag"]


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag(BRANCH + "text")]
    | Annotated[JsonObjectFormat, Tag(BRANCH + "json_object")]
    | Annotated[JsonSchemaFormat, Tag(BRANCH + "json_schema")]
    | Annotated[JsonFormat, Tag(BRANCH + "json")]
    | Annotated[RegexFormat, Tag(BRANCH + "regex")]
    | Annotated[EbnfFormat, Tag(BRANCH + "ebnf")]
    | Annotated[StructuralTagFormat, Tag(BRANCH + "structural_tag")],
    Discriminator(
        branch_by("type"),
        custom_error_type="format",
        custom_error_message=(
            "must be an object whose type is text, json_object, json_schema, json, regex, ebnf or structural_tag"
        ),
    ),
]


class StructuredOutputs(RequestPart):
    """Extension: exactly one of these."""

    json_: dict[str, Any] | str | None = Field(default=None, alias="json")
    regex: GrammarText | None = None
    choice: Choices | None = None
    grammar: GrammarText | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | str | None = None


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """A format that the request requires of its answer.

    Attributes:
        kind: the kind of ``value``.
        value: schema, expression, grammar, choices or structural tag.
        path: path of ``value`` in the request.
        field: the request's field.
        strict: whether the request asks for OpenAI's strict mode.
    """

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"]
    value: Any
    path: str
    field: str
    strict: bool = False

    def guide(self, kinds: frozenset[str], backend: GuideBackend | None = None) -> Guide | None:
        """Make the guide that enforces the format; None when the engine takes no such guide.

        Args:
            kinds: kinds of guides that the engine takes.
            backend: the engine's compiler of guides, if known.

        Raises:
            BadRequestError: with the path of what guided decoding cannot enforce.
        """
        kind = next((kind for kind in _GUIDES[self.kind] if kind in kinds), None)
        return None if kind is None else Guide(kind, self._text(kind, backend))

    def _text(self, kind: GuideKind, backend: GuideBackend | None) -> str:
        if self.kind == "json_schema":
            guided = guided_schema(self.value, self.path, exact=True, backend=backend)
            return json.dumps(guided, ensure_ascii=False)
        if self.kind == "json_object":
            return json.dumps(_ANY_OBJECT) if kind == "json_schema" else ""
        if self.kind == "choice" and kind == "regex":
            return "|".join(f"({re.escape(text)})" for text in self.value)
        if self.kind == "choice":
            return "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in self.value)
        return json.dumps(self.value, ensure_ascii=False) if self.kind == "structural_tag" else str(self.value)

    @property
    def checkable(self) -> bool:
        """Whether a finished answer can be validated without a guide."""
        return self.kind in {"json_object", "json_schema", "choice"}

    def deviations(self) -> list[str]:
        """Return the paths at which OpenAI's strict mode would reject the schema."""
        return deviations(self.value, self.path) if self.kind == "json_schema" and self.strict else []


def check_format(answer_format: AnswerFormat) -> None:
    """Reject an invalid schema, expression or structural tag.

    Raises:
        BadRequestError: with the path of the fault.
    """
    if answer_format.kind == "json_schema":
        check_schema(answer_format.value, answer_format.path, caller().id)
    elif answer_format.kind == "regex":
        _check_regex(answer_format.value, answer_format.path)
    elif answer_format.kind == "structural_tag":
        _check_tag(answer_format.value, answer_format.path)


def _check_tag(tag: Mapping[str, Any], path: str) -> None:
    """Check the parts of a tag that all engines have; the engine checks the others."""
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if isinstance(tag.get("format"), dict):
        return
    if not isinstance(structures, list) or not isinstance(triggers, list):
        message = "A structural tag must have 'format', or 'structures' and 'triggers'."
        raise BadRequestError(message, param=path, code="invalid_value")
    for index, each in enumerate(structures):
        if not isinstance(each, dict) or not all(isinstance(each.get(key), str) for key in ("begin", "end")):
            message = "A structure of a structural tag must be an object with the strings 'begin' and 'end'."
            raise BadRequestError(message, param=f"{path}.structures[{index}]", code="invalid_value")
    for index, each in enumerate(triggers):
        if not isinstance(each, str) or not each:
            message = "A trigger of a structural tag must be a string."
            raise BadRequestError(message, param=f"{path}.triggers[{index}]", code="invalid_value")


def _check_regex(pattern: str, path: str) -> None:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        if not re.search(r"\(\?<|\\[pPcu]", pattern):  # guides accept some spellings that Python does not
            raise BadRequestError("It is not a valid regular expression.", param=path, code="invalid_value") from None
    if has_assertions(pattern):
        message = "Guided decoding does not support look-around, word boundaries and back-references."
        raise BadRequestError(message, param=path, code="unsupported_value")


def capability_of(response_format: Any) -> str:
    """The name of the capability that a ``response_format`` needs."""
    if isinstance(response_format, RegexFormat):
        return "guided_regex"
    return "guided_grammar" if isinstance(response_format, EbnfFormat) else "response_format"


def from_response_format(response_format: Any) -> AnswerFormat | None:
    """Read ``response_format``; None for any text.

    Raises:
        BadRequestError: for a schema that stands where only its wrapper may.
    """
    field = "response_format"
    wanted: AnswerFormat | None = None
    if isinstance(response_format, JsonSchemaFormat):
        wanted = _from_json_schema(response_format.json_schema, field)
    elif isinstance(response_format, JsonObjectFormat) and response_format.schema_ is None:
        wanted = AnswerFormat("json_object", None, field, field)
    elif isinstance(response_format, JsonObjectFormat | JsonFormat):
        wanted = AnswerFormat("json_schema", response_format.schema_, f"{field}.schema", field)
    elif isinstance(response_format, RegexFormat):
        wanted = AnswerFormat("regex", response_format.regex, f"{field}.regex", field)
    elif isinstance(response_format, EbnfFormat):
        wanted = AnswerFormat("grammar", response_format.ebnf, f"{field}.ebnf", field)
    elif isinstance(response_format, StructuralTagFormat):
        wanted = AnswerFormat("structural_tag", response_format.model_dump(), field, field)
    return wanted


def _from_json_schema(schema: NamedSchema, field: str) -> AnswerFormat:
    path = f"{field}.json_schema"
    if schema.schema_ is not None:
        return AnswerFormat("json_schema", schema.schema_, f"{path}.schema", field, schema.strict)
    if schema.model_extra:  # otherwise a schema without its wrapper would allow any object
        message = f"The schema must be sent as '{path}.schema', with the name as '{path}.name'."
        raise BadRequestError(message, param=f"{path}.schema", code="missing_required_parameter")
    return AnswerFormat("json_object", None, path, field)


def unknown_parts(response_format: Any, structured_outputs: StructuredOutputs | None) -> dict[str, Any]:
    """The paths of unread fields of formats."""
    found: dict[str, Any] = {}
    parts: list[tuple[str, Any]] = [("structured_outputs", structured_outputs)]
    if not isinstance(response_format, StructuralTagFormat):  # structural tags have fields of xgrammar
        parts.append(("response_format", response_format))
    if isinstance(response_format, JsonSchemaFormat):
        parts.append(("response_format.json_schema", response_format.json_schema))
    for path, part in parts:
        if part is not None:
            found |= {f"{path}.{name}": value for name, value in (part.model_extra or {}).items()}
    return found


def from_structured_outputs(outputs: StructuredOutputs) -> Sequence[AnswerFormat]:
    """Read ``structured_outputs``, of which a valid request has exactly one field.

    Raises:
        BadRequestError: a text is not valid JSON.
    """
    field = "structured_outputs"
    found: list[AnswerFormat] = []
    if outputs.json_ is not None:
        found.append(schema_of(outputs.json_, f"{field}.json", field))
    for kind, value in (("regex", outputs.regex), ("choice", outputs.choice), ("grammar", outputs.grammar)):
        if value is not None:
            found.append(AnswerFormat(kind, value, f"{field}.{kind}", field))  # type: ignore[arg-type]
    if outputs.json_object:
        found.append(AnswerFormat("json_object", None, f"{field}.json_object", field))
    if outputs.structural_tag is not None:
        path = f"{field}.structural_tag"
        found.append(AnswerFormat("structural_tag", _object(outputs.structural_tag, path), path, field))
    return found


def schema_of(value: dict[str, Any] | str, path: str, field: str) -> AnswerFormat:
    """Read a schema that may come as JSON text.

    Raises:
        BadRequestError: for a text that is not a JSON object.
    """
    return AnswerFormat("json_schema", _object(value, path), path, field)


def _object(value: dict[str, Any] | str, path: str) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    try:
        body = parse_body(value.encode())  # as strictly as the request: finite numbers, few levels
    except BadRequestError:
        body = None
    if body is None or body.replaced:
        raise BadRequestError(f"'{path}' must be a JSON object.", param=path, code="invalid_value")
    return body.fields
