"""A row of the table of parameters, which annotates the field of a request."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import GetJsonSchemaHandler
from pydantic_core import CoreSchema

from gateway.generation.engine import Capability

EndpointName = Literal["chat", "completions"]
Class = Literal["engine", "annotation", "impossible"]
Source = Literal["OpenAI", "extension"]

BOTH: tuple[EndpointName, ...] = ("chat", "completions")

BY_GATEWAY = Capability("emulated", "by the gateway")
COUNTED = Capability("emulated", "counted from token ids")
RANKED = Capability("emulated", "candidates are parallel requests to the engine, ranked by mean log-prob")
NO_EFFECT = Capability("emulated", "validated and logged, without effect")

BY_ENGINE = Capability("native", "by the engine")
NO_INPUT = Capability("impossible", "this model's engine has no input for it.")
NO_GUIDES = Capability("impossible", "this model's engine has no guided decoding.")
NO_DRAFTS = Capability("impossible", "this model's engine does not accept draft tokens.")
FROM_IDS = Capability("emulated", "from the token ids of the answer.")
_ASKING_THE_ENGINE = (BY_ENGINE, NO_INPUT, NO_GUIDES, NO_DRAFTS, FROM_IDS)

_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")  # of Markdown, to pages that the document does not have beside it
_ANY_EMPTY: tuple[Any, ...] = ([], {})


@dataclass(frozen=True)
class Parameter:
    """The meaning of a request parameter, whose type, range and default are those of the annotated field.

    Attributes:
        does: its effect, in a sentence without its subject.
        note: where this differs from OpenAI's own server, and why; or its rules where OpenAI does not have it.
        how: how it is served where the engine says nothing of its own.
        neutral: values that change nothing and are accepted always, as null is; None: the default of the field. An
            empty array or object stands for both.
        kind: ``engine``: it shapes the answer, by the engine or by the gateway around it; ``annotation``: it says
            something about the request and has no effect by nature; ``impossible``: no engine here can serve it.
        hint: whether an answer without it is as true to the request: a wish for the model's manner, or for the way that
            the request takes. Where it cannot be served, the policy for hints decides.
        shared: whether Responses and Messages take a field of this name as chat completions do.
        source: OpenAI's own, or an extension that other servers have too.
        name: as requests write it; ``stream_options.include_usage`` for a field of an object. The table fills it in.
        endpoints: where it means this. The table fills it in.
        type: its type and range, for readers, where no field states them.
        default: of the field; None where it has none. A model's settings may have another.
    """

    does: str
    note: str = ""
    how: Capability = BY_ENGINE
    neutral: tuple[Any, ...] | None = None
    kind: Class = "engine"
    hint: bool = False
    shared: bool = False
    source: Source = "OpenAI"
    name: str = ""
    endpoints: tuple[EndpointName, ...] = ()
    type: str = ""
    default: Any = field(default=None, compare=False)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the field in the OpenAPI document, in the words of the table."""
        sentences = f"{self.does}. {self.note}".rstrip()
        if self.source == "extension":
            sentences = f"Extension: {sentences}"
        return handler(schema) | {"description": _LINK.sub(r"\1", sentences[0].upper() + sentences[1:])}

    @property
    def asks_engine(self) -> bool:
        """Whether the engine's capabilities decide how the parameter is served."""
        return self.how in _ASKING_THE_ENGINE

    def is_neutral(self, value: Any) -> bool:
        """Tell whether a value changes nothing, so that the parameter can be left out."""
        return value is None or any(_same(value, neutral) for neutral in self.neutral or ())

    @property
    def neutral_text(self) -> str:
        """The neutral values as JSON, for documents."""
        return ", ".join(f"{each:g}" if isinstance(each, float) else json.dumps(each) for each in self.neutral or ())


@dataclass(frozen=True)
class Extension(Parameter):
    """A parameter of other servers of open models that OpenAI does not have."""

    how: Capability = NO_INPUT
    source: Source = "extension"


@dataclass(frozen=True)
class Annotation(Parameter):
    """A parameter that describes the request and has no effect on the answer."""

    how: Capability = NO_EFFECT
    kind: Class = "annotation"


def _same(value: Any, neutral: Any) -> bool:
    """JSON equality: 0 and 0.0 are one number, 1 and true are not, and what is empty is empty."""
    if isinstance(value, bool) or isinstance(neutral, bool):
        return value is neutral
    return bool(value == neutral) or (value in _ANY_EMPTY and neutral in _ANY_EMPTY)
