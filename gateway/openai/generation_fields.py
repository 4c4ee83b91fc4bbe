"""Fields that all endpoints share which generate text, and what they ask for in neutral terms."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from gateway.bad_request import BadRequestError
from gateway.config.model_settings import MOST_DRAFT_TOKENS, SamplingDefaults
from gateway.generation import Capability, SamplingParams
from gateway.openai.branches import BRANCH, text_or_list
from gateway.openai.formats import (
    Choices,
    GrammarText,
    ResponseFormat,
    StructuredOutputs,
    Wanted,
    capability_of,
    check_wanted,
    from_response_format,
    from_structured_outputs,
    schema_of,
    unknown_parts,
)
from gateway.serving.prompt_source import Truncation

# Below this a temperature is greedy: dividing logits by it overflows float32, and the outcome is the same.
GREEDY_BELOW = 1e-4
MOST_TOKENS = 2**31 - 1  # the engine's int32
_END = 100.0  # the ends of a bias in OpenAI's range
_ABSOLUTE = 1e4  # no logit outweighs it, and beside it differences between logits still count in FP32

_StopString = Annotated[str, Field(min_length=1, max_length=1024)]
_Stop = Annotated[
    Annotated[_StopString, Tag(BRANCH + "text")]
    | Annotated[list[_StopString], Field(max_length=64), Tag(BRANCH + "parts")],
    Discriminator(
        text_or_list, custom_error_type="stop", custom_error_message="A string or an array of strings is expected"
    ),
]
_TokenId = Annotated[int, Field(ge=0, le=MOST_TOKENS)]


def _token_key(key: str) -> str:
    if not (key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key):
        raise PydanticCustomError("token_id", "A token id, a whole number from 0, is expected as key")
    return key


_TokenKey = Annotated[str, AfterValidator(_token_key)]
_Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]

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


class StreamOptions(BaseModel):
    """Options of a stream.

    Attributes:
        include_usage: whether a last chunk carries the usage of the whole answer.
        continuous_usage_stats: whether every chunk carries the usage so far.
        include_obfuscation: whether chunks are padded, so that their lengths do not tell those of the tokens.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: bool = False
    continuous_usage_stats: bool = False
    include_obfuscation: bool = False


class GenerationFields(BaseModel):
    """What requests of chat and of completions have in common; null means absent."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: str = Field(min_length=1, description="Id of a served model.")
    max_tokens: int | None = Field(
        default=None, ge=1, le=MOST_TOKENS, description="Tokens at most; absent: the rest of the context."
    )
    temperature: float = Field(default=1.0, ge=0, le=2, allow_inf_nan=False, description="Below 0.0001: greedy.")
    top_p: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False, description="0: greedy.")
    top_k: int = Field(default=0, ge=-1, le=MOST_TOKENS, description="Extension: candidates kept; 0 and -1: all.")
    min_p: float = Field(default=0.0, ge=0, le=1, allow_inf_nan=False, description="Extension.")
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, description="Any 64-bit integer.")
    presence_penalty: float = Field(default=0.0, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2, allow_inf_nan=False)
    repetition_penalty: float = Field(default=1.0, gt=0, le=10, allow_inf_nan=False, description="Extension.")
    logit_bias: dict[_TokenKey, _Bias] = Field(default_factory=dict, max_length=1024, description="By token id.")
    bad_words: list[_StopString] = Field(default_factory=list, max_length=64, description="Extension.")
    n: int = Field(default=1, ge=1, le=128, description="Number of choices.")
    # Before best_of, so that where there are no beams it is refused by its own name.
    use_beam_search: bool = Field(default=False, description="Extension.")
    best_of: int | None = Field(default=None, ge=1, le=20, description="Candidates, or beams.")
    length_penalty: float = Field(default=1.0, ge=-10, le=10, allow_inf_nan=False, description="Extension.")
    stop: _Stop | None = Field(default=None, description="At most 4, unless the operator allows more.")
    stop_token_ids: list[_TokenId] = Field(default_factory=list, max_length=64, description="Extension.")
    include_stop_str_in_output: bool = Field(default=False, description="Extension.")
    no_stop_trim: bool = Field(default=False, description="Extension: include_stop_str_in_output.")
    min_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS, description="Extension.")
    ignore_eos: bool = Field(default=False, description="Extension.")
    skip_special_tokens: bool = Field(default=True, description="Extension.")
    prompt_logprobs: int | None = Field(default=None, ge=-1, le=20, description="Extension; not -1.")
    return_token_ids: bool = Field(default=False, description="Extension.")
    return_tokens_as_token_ids: bool = Field(default=False, description="Extension: in log-probs.")
    truncate_prompt_tokens: int | None = Field(
        default=None, ge=-1, le=MOST_TOKENS, description="Extension: tokens of the prompt that are kept; -1: what fits."
    )
    truncation_side: Literal["left", "right"] = Field(default="left", description="Extension: where a prompt is cut.")
    num_draft_tokens: int | None = Field(
        default=None, ge=0, le=MOST_DRAFT_TOKENS, description="Extension: guessed by a draft model; 0: none."
    )
    prompt_table: str | None = Field(default=None, min_length=1, max_length=256, description="Extension: by its name.")
    response_format: ResponseFormat | None = Field(default=None, description="text when absent.")
    cache_salt: str | None = Field(default=None, min_length=1, max_length=1024, description="Extension.")
    structured_outputs: StructuredOutputs | None = Field(default=None, description="Extension: one form of the answer.")
    guided_json: dict[str, Any] | str | None = Field(default=None, description="Extension: structured_outputs.json.")
    guided_regex: GrammarText | None = Field(default=None, description="Extension, as above.")
    guided_choice: Choices | None = Field(default=None, description="Extension, as above.")
    guided_grammar: GrammarText | None = Field(default=None, description="Extension, as above.")
    json_schema: dict[str, Any] | str | None = Field(default=None, description="Extension: structured_outputs.json.")
    regex: GrammarText | None = Field(default=None, description="Extension: structured_outputs.regex.")
    ebnf: GrammarText | None = Field(default=None, description="Extension: structured_outputs.grammar.")
    grammar: GrammarText | None = Field(default=None, description="Extension: structured_outputs.grammar.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    def sampling_params(self, defaults: SamplingDefaults) -> SamplingParams:
        """The parameters of the answer, but for those that each endpoint has in a form of its own.

        Args:
            defaults: of the model, for fields that the request leaves out.
        """
        fields = vars(self)
        values = {name: fields[name] for name in _SHARED}
        values |= {name: value for name, value in defaults.given.items() if name not in self.model_fields_set}
        if values["temperature"] < GREEDY_BELOW or values["top_p"] == 0:
            values |= {"temperature": 0.0, "top_p": 1.0}
        values["top_k"] = max(values["top_k"], 0)
        for name in _LISTS:
            values[name] = tuple(values[name])
        values["logit_bias"] = {int(token): _absolute(bias) for token, bias in self.logit_bias.items()}
        values["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        values["include_stop_str_in_output"] |= self.no_stop_trim
        values["cache_salt"] = self.cache_salt or ""
        if self.use_beam_search:
            values["beam_width"] = self.best_of or 1
        return SamplingParams(**values | {"n": self.candidates} | self.own_params())

    def own_params(self) -> dict[str, Any]:
        """The parameters that the endpoint has in a form of its own."""
        return {}

    def truncation(self, params: SamplingParams) -> Truncation | None:
        """How the prompt is cut; None where it is not.

        Args:
            params: of the answer.
        """
        if self.truncate_prompt_tokens is None:
            return None
        return Truncation(
            self.truncate_prompt_tokens, self.truncation_side, params.max_tokens or 1, params.max_tokens_name
        )

    @functools.cached_property
    def forms(self) -> Sequence[Wanted]:
        """The forms that the answer shall have; one at most in a sound request.

        Raises:
            BadRequestError: for a text in place of JSON that is none.
        """
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

    @property
    def candidates(self) -> int:
        """Generations to start: more than ``n`` where the best of them are chosen."""
        return self.n if self.use_beam_search else max(self.n, self.best_of or 1)

    def given(self) -> dict[str, Any]:
        """The fields that the request has, as plain JSON values; unknown ones too."""
        names = sorted(self.model_fields_set & self.__pydantic_fields__.keys(), key=_order(type(self)).__getitem__)
        return {name: self._plain(name) for name in names} | (self.model_extra or {})

    def _plain(self, name: str) -> Any:
        value = getattr(self, name)
        return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


_SHARED = tuple(
    field.name for field in dataclasses.fields(SamplingParams) if field.name in GenerationFields.model_fields
)
_LISTS = ("bad_words", "stop_token_ids")


def _absolute(bias: float) -> float:
    """A bias whose ends are made absolute: -100 is never and 100 is always, whatever the logits."""
    return math.copysign(_ABSOLUTE, bias) if abs(bias) >= _END else bias


def without_nulls(data: Mapping[str, Any]) -> dict[str, Any]:
    """Null means absent: in the request and in objects of its own; never inside a schema, where it is a value."""
    data = {key: value for key, value in data.items() if value is not None}
    for key in ("stream_options", "structured_outputs", "prediction"):
        data |= {key: pruned(data[key])} if key in data else {}
    if isinstance(data.get("response_format"), dict):
        data["response_format"] = pruned_inside(data["response_format"], "json_schema")
    return data


def pruned(value: Any) -> Any:
    """An object without its nulls; anything else as it is."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def pruned_inside(value: Any, key: str) -> Any:
    """An object without its nulls and without those of the object under ``key``."""
    value = pruned(value)
    return {**value, key: pruned(value[key])} if isinstance(value, dict) and key in value else value


@functools.cache
def _order(model: type[BaseModel]) -> dict[str, int]:
    """The place of each field."""
    return {name: place for place, name in enumerate(model.model_fields)}


Request = TypeVar("Request", bound=GenerationFields)


def without(request: Request, names: Collection[str]) -> Request:
    """The request as if it did not have these fields."""
    if not names:
        return request
    known = type(request).model_fields
    defaults = {name: known[name].get_default(call_default_factory=True) for name in names if name in known}
    copy = request.model_copy(update=defaults)
    copy.model_fields_set.difference_update(names)
    for name in vars(copy).keys() - known.keys():  # facts that were derived of the whole request
        del vars(copy)[name]
    return copy


def consider_form(request: GenerationFields, capabilities: dict[str, Capability]) -> None:
    """Let the type of ``response_format`` decide what it takes to serve it."""
    how = capabilities.get(capability_of(request.response_format))
    if how is not None:
        capabilities["response_format"] = how


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
