"""The fields of all endpoints that generate text, and which of them contradict each other."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.bad_request import BadRequestError
from gateway.generation import Capability
from gateway.openai.formats import (
    Choices,
    GrammarText,
    ResponseFormat,
    StructuredOutputs,
    Wanted,
    check_wanted,
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


def check_shared(request: GenerationFields) -> None:
    """Refuse combinations of the fields of all endpoints that generate."""
    invalid = "invalid_value"
    options = request.stream_options
    if options is not None and not request.stream:
        raise BadRequestError("'stream_options' is only allowed when 'stream' is true.", "stream_options", invalid)
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        param = "stream_options.continuous_usage_stats"
        raise BadRequestError(f"'{param}' is only allowed when 'stream_options.include_usage' is true.", param, invalid)
    if request.best_of is not None and request.best_of < request.n:
        raise BadRequestError(f"'best_of' must be at least 'n', which is {request.n}.", "best_of", invalid)
    if request.stream and request.candidates > request.n:
        raise BadRequestError(
            "'best_of' cannot be streamed: the best is known at the end. Set 'stream' to false.", "best_of", invalid
        )
    if request.stream and request.prompt_logprobs is not None:
        raise BadRequestError(
            "'prompt_logprobs' is not available in a stream. Set 'stream' to false.", "prompt_logprobs", invalid
        )
    if request.prompt_logprobs == -1:
        message = (
            "'prompt_logprobs' of -1 asks for the whole vocabulary, which no engine here gives; ask for 20 at most."
        )
        raise BadRequestError(message, "prompt_logprobs", "unsupported_parameter")
    if request.truncate_prompt_tokens == 0:
        raise BadRequestError(
            "'truncate_prompt_tokens' must leave a token; -1 keeps what fits.", "truncate_prompt_tokens", invalid
        )
    if request.max_tokens is not None and request.min_tokens > request.max_tokens:
        raise BadRequestError("'min_tokens' must be at most 'max_tokens'.", "min_tokens", invalid)
    _check_beams(request)
    if request.forms or request.structured_outputs is not None:
        _check_forms(request)


def _check_forms(request: GenerationFields) -> None:
    forms = request.forms
    if len(forms) > 1:
        names = " and ".join(f"'{form.path}'" for form in forms[:2])
        raise BadRequestError(
            f"An answer can have one form only, but {names} ask for two.", forms[1].path, "invalid_value"
        )
    given = request.structured_outputs
    if given is not None and not from_structured_outputs(given) and given.json_object is None:
        message = "'structured_outputs' needs one of json, regex, choice, grammar, json_object and structural_tag."
        raise BadRequestError(message, "structured_outputs", "invalid_value")
    for form in forms:
        check_wanted(form)


def _check_beams(request: GenerationFields) -> None:
    invalid = "invalid_value"
    if not request.use_beam_search:
        if request.length_penalty != 1:
            raise BadRequestError(
                "'length_penalty' is only allowed when 'use_beam_search' is true.", "length_penalty", invalid
            )
        return
    if request.stream:
        message = "'use_beam_search' cannot be streamed: the best beam is known at the end. Set 'stream' to false."
        raise BadRequestError(message, "use_beam_search", invalid)
    if request.n > 1:
        raise BadRequestError("'use_beam_search' gives one choice, the best beam; set 'n' to 1.", "n", invalid)
    if (request.best_of or 1) < 2:
        raise BadRequestError("'use_beam_search' needs 'best_of', the number of beams, from 2.", "best_of", invalid)
