"""The fields of all endpoints that generate text, and the forms of an answer that they ask for."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.generation import Capability
from gateway.openai.formats import (
    Choices,
    GrammarText,
    ResponseFormat,
    StructuredOutputs,
    Wanted,
    from_response_format,
    from_structured_outputs,
    schema_of,
    unknown_parts,
)
from gateway.openai.parameters.row import BY_GATEWAY, COUNTED, NO_GUIDES, Annotation, Extension, Parameter
from gateway.openai.sampling_fields import SamplingFields

_FORMS: Mapping[str, Literal["json_schema", "regex", "choice", "grammar"]] = {
    "guided_json": "json_schema",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
    "json_schema": "json_schema",
    "regex": "regex",
    "ebnf": "grammar",
    "grammar": "grammar",
}
"""Fields that want one form each, and which."""

_FORM_FIELDS = ("response_format", "structured_outputs", *_FORMS)


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: Annotated[bool, Parameter("adds a last chunk with the usage of the whole answer", how=COUNTED)] = (
        False
    )
    continuous_usage_stats: Annotated[
        bool, Extension("puts the usage so far into every chunk", "Needs `include_usage`; else 400.", COUNTED)
    ] = False
    include_obfuscation: Annotated[
        bool,
        Parameter(
            "pads chunks by a field `obfuscation`, so that their lengths do not tell those of the tokens",
            "Off unless it is true; with OpenAI it is on unless it is false. It costs some 40 bytes a chunk, and the"
            " fast way of a plain stream.",
            Capability("emulated", "every chunk is filled up to a multiple of 64 bytes"),
        ),
    ] = False


class GenerationFields(SamplingFields):
    """What requests of chat and of completions have in common; null means absent."""

    response_format: Annotated[
        ResponseFormat | None,
        Parameter(
            "gives the answer a form",
            "A schema may leave OpenAI's strict subset: the header `x-strict-schema-deviations` says where. What guides"
            " cannot enforce is 400 with its path. OpenAI has the first three types, in chat. The others are"
            " extensions, and so is `schema` beside `json_object`. See [tools.md](tools.md).",
            NO_GUIDES,
            neutral=({"type": "text"},),
        ),
    ] = None
    cache_salt: Annotated[
        str | None,
        Field(min_length=1, max_length=1024),
        Extension(
            "keeps the prompt's KV blocks from requests with another salt, so that no timing tells who asked what",
            "As in vLLM. TensorRT-LLM's backend for Triton has no input for it.",
        ),
    ] = None
    priority: Annotated[
        int,
        Field(ge=-(2**31), lt=2**31),
        Extension(
            "orders the requests of one caller that wait for their turn: the smaller goes first",
            "As in vLLM, but among the caller's own requests only, from -1024 to 1023. See"
            " [reliability.md](reliability.md#fair-shares).",
            Capability("impossible", "requests to this model do not wait for a turn: `admission` sets no bound."),
        ),
    ] = 0
    structured_outputs: Annotated[
        StructuredOutputs | None,
        Extension("gives the answer a form", "As in vLLM. A grammar is GBNF, as xgrammar reads it.", NO_GUIDES),
    ] = None
    guided_json: Annotated[
        dict[str, Any] | str | None, Extension("is `structured_outputs.json`", "An older name of vLLM's.", NO_GUIDES)
    ] = None
    guided_regex: Annotated[
        GrammarText | None, Extension("is `structured_outputs.regex`", "An older name of vLLM's.", NO_GUIDES)
    ] = None
    guided_choice: Annotated[
        Choices | None, Extension("is `structured_outputs.choice`", "An older name of vLLM's.", NO_GUIDES)
    ] = None
    guided_grammar: Annotated[
        GrammarText | None, Extension("is `structured_outputs.grammar`", "An older name of vLLM's.", NO_GUIDES)
    ] = None
    json_schema: Annotated[
        dict[str, Any] | str | None,
        Extension("is `structured_outputs.json`", "SGLang's and llama.cpp's name.", NO_GUIDES),
    ] = None
    regex: Annotated[GrammarText | None, Extension("is `structured_outputs.regex`", "SGLang's name.", NO_GUIDES)] = None
    ebnf: Annotated[
        GrammarText | None,
        Extension("is `structured_outputs.grammar`", "SGLang's name.", NO_GUIDES),
    ] = None
    grammar: Annotated[
        GrammarText | None, Extension("is `structured_outputs.grammar`", "llama.cpp's name.", NO_GUIDES)
    ] = None
    stream: Annotated[bool, Parameter("sends the answer as Server-Sent Events", how=BY_GATEWAY)] = False
    stream_options: Annotated[
        StreamOptions | None, Parameter("has the options of a stream", how=BY_GATEWAY, neutral=({},))
    ] = None
    user: Annotated[str | None, Annotation("names the end user", "It is in the access log.")] = None

    @functools.cached_property
    def forms(self) -> Sequence[Wanted]:
        """The forms that the answer shall have; one at most in a sound request.

        Raises:
            BadRequestError: for a text in place of JSON that is none.
        """
        if self.model_fields_set.isdisjoint(_FORM_FIELDS):
            return ()
        found: list[Wanted] = []
        wanted = from_response_format(self.response_format)
        if wanted is not None:
            found.append(wanted)
        if self.structured_outputs is not None:
            found += from_structured_outputs(self.structured_outputs)
        for name, kind in _FORMS.items():
            value = getattr(self, name)
            if value is not None:
                found.append(schema_of(value, name, name) if kind == "json_schema" else Wanted(kind, value, name, name))
        return found

    def unknown_parts(self) -> dict[str, Any]:
        """Fields that nobody reads inside of its objects, by their paths."""
        if self.response_format is None and self.structured_outputs is None:
            return {}
        return unknown_parts(self.response_format, self.structured_outputs)

    def names(self, guided_by: str | None) -> dict[str, str]:
        """This request's names of parameters that errors of the engine call otherwise.

        Args:
            guided_by: path of what the engine's guide is made from, None without one.
        """
        names = {} if guided_by is None else {"guide": guided_by}
        if self.candidates > self.n:  # which are told apart by their log-probs
            names["logprobs"] = "best_of"
        return names

    def annotations(self) -> dict[str, Any]:
        """What the request says of itself; for the access log."""
        return {} if self.user is None else {"user": self.user[:512]}

    @property
    def obfuscated(self) -> bool:
        """Whether the chunks of its stream are padded."""
        return self.stream_options is not None and self.stream_options.include_obfuscation

    def given(self) -> dict[str, Any]:
        """The fields that the request has, as plain JSON values; unknown ones too."""
        names = [name for name in type(self).model_fields if name in self.model_fields_set]
        return {name: _plain(getattr(self, name)) for name in names} | (self.model_extra or {})


def extras(path: str, part: BaseModel) -> dict[str, Any]:
    """Fields of an object that are not defined, by their paths."""
    return {f"{path}.{name}": value for name, value in (part.model_extra or {}).items()}


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value
