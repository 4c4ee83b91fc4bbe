"""Fields of all endpoints that generate text, and checks of their contradictions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from gateway.api.openai.formats import (
    AnswerFormat,
    Choices,
    GrammarText,
    ResponseFormat,
    StructuredOutputs,
    check_format,
    from_response_format,
    from_structured_outputs,
    schema_of,
    unknown_parts,
)
from gateway.api.openai.parameters.row import (
    BY_ENGINE,
    BY_GATEWAY,
    COUNTED,
    FROM_IDS,
    NO_GUIDES,
    RANKED,
    Annotation,
    Extension,
    Parameter,
)
from gateway.api.openai.validation import BRANCH, RequestPart, text_or_list
from gateway.generation import Capability, SamplingParams
from gateway.serving.prompts import Truncation
from gateway.settings.model_settings import MOST_DRAFT_TOKENS, SamplingDefaults
from gateway.text.bad_request import BadRequestError

# Below this a temperature is greedy: dividing logits by it overflows float32, and the outcome is the same. Engines
# get 0 for it, never a temperature that is 0 in float32, which TensorRT-LLM takes for 1.
GREEDY_BELOW = 1e-4
MOST_TOKENS = 2**31 - 1  # the engine's int32
# The ends of a bias, made absolute: no logit outweighs them, and beside them differences between logits still count in
# FP32.
_ABSOLUTE = {-100.0: -1e4, 100.0: 1e4}

MOST_STOPS = 64
_StopString = Annotated[str, Field(min_length=1, max_length=1024)]
_Stop = Annotated[
    Annotated[_StopString, Tag(BRANCH + "text")]
    | Annotated[list[_StopString], Field(max_length=MOST_STOPS), Tag(BRANCH + "parts")],
    Discriminator(
        text_or_list, custom_error_type="stop", custom_error_message="must be a string or an array of strings"
    ),
]
_TokenId = Annotated[int, Field(ge=0, le=MOST_TOKENS)]


def _token_key(key: str) -> str:
    if not (key.isascii() and key.isdigit() and len(key) <= 10 and str(int(key)) == key):
        raise PydanticCustomError("token_id", "each key must be a token id, an integer of at least 0")
    return key


_TokenKey = Annotated[str, AfterValidator(_token_key)]
_Bias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
BestOf = Annotated[int | None, Field(ge=1, le=20)]

LIMIT = Parameter(
    "limits the tokens of the answer",
    "The same as `max_completion_tokens` in chat; different values of both are rejected with 400. The default is the "
    "rest of the context, for completions too (OpenAI: 16). A value that exceeds the context is lowered, as `usage` "
    "shows; with `max_tokens_policy: reject` it is rejected with 400, as by OpenAI. Completions accept 0 with `echo`.",
    BY_GATEWAY,
)


class SamplingFields(RequestPart):
    """The shape of an answer but for its form; null means absent. Of several fields at fault the first is named."""

    model: Annotated[
        str, Field(min_length=1), Parameter("names the served model or one of its aliases", how=BY_GATEWAY)
    ]
    max_tokens: Annotated[int | None, Field(ge=1, le=MOST_TOKENS), LIMIT] = None
    temperature: Annotated[
        float,
        Field(ge=0, le=2, allow_inf_nan=False),
        Parameter(
            "divides the logits; 0 is greedy",
            "A value below 0.0001 is greedy: dividing by it would overflow float32 with the same result.",
        ),
    ] = 1.0
    top_p: Annotated[
        _Share, Parameter("keeps the smallest set of candidates with this probability mass; 0 is greedy")
    ] = 1.0
    top_k: Annotated[
        int,
        Field(ge=-1, le=MOST_TOKENS),
        Extension(
            "keeps this number of candidates; 0 and -1 keep all",
            "TensorRT-LLM keeps at most 1024.",
            how=BY_ENGINE,
            neutral=(0, -1),
            shared=True,
        ),
    ] = 0
    min_p: Annotated[
        _Share, Extension("drops candidates less probable than this share of the best candidate", shared=True)
    ] = 0.0
    seed: Annotated[
        int | None,
        Field(ge=-(2**63), lt=2**63),
        Parameter(
            "makes sampling repeatable",
            "The default is a random seed. Choice i of `n` has seed + i, as 64 bits with wrap-around. The same seed "
            "gives the same answer only at equal load: batch sizes change the last bits of the engine's numbers. "
            "With a seed, each value of `num_draft_tokens`, here or in the operator's settings, gives a different "
            "answer. `system_fingerprint` is absent.",
            shared=True,
        ),
    ] = None
    presence_penalty: Annotated[
        _Penalty,
        Parameter(
            "lowers the logit of every token that occurred",
            "TensorRT-LLM counts the prompt's tokens too; OpenAI counts only the answer's tokens.",
            shared=True,
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        _Penalty,
        Parameter(
            "lowers the logit of a token for each time that it occurred",
            "TensorRT-LLM counts the prompt's tokens too; OpenAI counts only the answer's tokens.",
            shared=True,
        ),
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        Field(gt=0, le=10, allow_inf_nan=False),
        Extension(
            "divides the logits of tokens that occurred, or multiplies them where they are negative",
            "TensorRT-LLM counts the prompt's tokens too, as vLLM does.",
            shared=True,
        ),
    ] = 1.0
    logit_bias: Annotated[
        dict[_TokenKey, _Bias],
        Field(max_length=1024),
        Parameter(
            "is added to the logits of these ids; -100 forbids a token, 100 forces it",
            "Ids are token ids of the model's tokenizer, see `POST /tokenize`; an id outside its vocabulary is "
            "rejected with 400. -100 and 100 are absolute: the engine gets a bias larger than any logit.",
            shared=True,
        ),
    ] = Field(default_factory=dict)
    bad_words: Annotated[
        list[_StopString],
        Field(max_length=64),
        Extension(
            "are never generated",
            "Each word is banned as its usual token sequences: at the start of a text, after a space and within a "
            "word. Other token sequences for the same text stay possible.",
            shared=True,
        ),
    ] = Field(default_factory=list)
    n: Annotated[
        int,
        Field(ge=1, le=128),
        Parameter(
            "is the number of choices",
            "Choice i has seed + i, and equals a separate request with this seed. `usage` counts prompt tokens once. "
            "If one choice fails, the request fails.",
            Capability("emulated", "by parallel requests to the engine"),
        ),
    ] = 1
    # Before best_of, so that without beams the error names this field.
    use_beam_search: Annotated[
        bool,
        Extension(
            "uses beam search with `best_of` beams and returns the best beam",
            "Requires `best_of` of at least 2, `n: 1` and no stream.",
        ),
    ] = False
    best_of: Annotated[
        BestOf,
        Parameter(
            "generates more candidates than `n` and returns the best",
            "With `use_beam_search` it is the number of beams. A value below `n`, or a stream, is rejected with 400.",
            RANKED,
            neutral=(1,),
        ),
    ] = None
    length_penalty: Annotated[
        float,
        Field(ge=-10, le=10, allow_inf_nan=False),
        Extension(
            "is the exponent of the length in a beam's score",
            "Only with `use_beam_search`; otherwise values other than 1 are rejected with 400.",
        ),
    ] = 1.0
    stop: Annotated[
        _Stop | None,
        Parameter(
            "ends the answer before this text",
            "At most 4, unless the operator allows more (`max_stops`).",
            Capability("emulated", "matched on the text by the gateway, which then stops the engine"),
            neutral=([],),
            type="string, or array of at most 4",
            shared=True,
        ),
    ] = None
    stop_token_ids: Annotated[
        list[_TokenId],
        Field(max_length=64),
        Extension("end the answer, like `stop`", shared=True),
    ] = Field(default_factory=list)
    include_stop_str_in_output: Annotated[
        bool,
        Extension(
            "includes the stop string in the text of the answer",
            "The model's end tokens are never part of the text.",
            BY_GATEWAY,
            shared=True,
        ),
    ] = False
    no_stop_trim: Annotated[
        bool, Extension("is SGLang's name for `include_stop_str_in_output`", how=BY_GATEWAY, shared=True)
    ] = False
    min_tokens: Annotated[
        int, Field(ge=0, le=MOST_TOKENS), Extension("is the least number of tokens of the answer", shared=True)
    ] = 0
    ignore_eos: Annotated[
        bool,
        Extension(
            "continues after the model's end tokens", how=Capability("emulated", "by sending no end id"), shared=True
        ),
    ] = False
    skip_special_tokens: Annotated[
        bool, Extension("leaves special tokens out of the text", how=FROM_IDS, shared=True)
    ] = True
    prompt_logprobs: Annotated[
        int | None,
        Field(ge=-1, le=20),
        Extension(
            "returns the log-prob of each prompt token with this number of alternatives",
            "-1, the whole vocabulary, is rejected with 400, and so is a stream. Returned next to `choices`, for "
            "completions in each choice; null for the first token, as in vLLM.",
        ),
    ] = None
    return_token_ids: Annotated[
        bool, Extension("returns `prompt_token_ids`, and `token_ids` in each choice", how=FROM_IDS)
    ] = False
    return_tokens_as_token_ids: Annotated[
        bool,
        Extension(
            "names tokens in log-probs by their ids, such as `token_id:7`",
            "`bytes` are still the bytes of the text.",
            BY_GATEWAY,
        ),
    ] = False
    truncate_prompt_tokens: Annotated[
        int | None,
        Field(ge=-1, le=MOST_TOKENS),
        Extension(
            "keeps this number of prompt tokens, with -1 as many as fit together with `max_tokens`",
            "As in vLLM: the last tokens are kept, regardless of the conversation and its template; the BOS token of "
            "a text stays. A value that exceeds the context is rejected with 400, and so is a prompt with more "
            "tokens than the larger of 131,072 and the context.",
            Capability("emulated", "the rendered prompt is cut by tokens"),
            shared=True,
        ),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"],
        Extension("is the side on which `truncate_prompt_tokens` cuts", how=BY_GATEWAY, shared=True),
    ] = "left"
    num_draft_tokens: Annotated[
        int | None,
        Field(ge=0, le=MOST_DRAFT_TOKENS),
        Extension(
            "is the number of tokens that the draft model proposes at a time and the engine verifies together; 0 "
            "disables it",
            "The operator sets the default (`speculative`). Greedy answers do not change; sampled answers keep their "
            "probabilities but change for the same `seed`. A value above 0 is rejected with 400 together with guided "
            "decoding, required tool calls, `use_beam_search` or `prompt_logprobs`. See "
            "[adapters.md](../how-to/adapters.md#speculative-decoding).",
            neutral=(0,),
            shared=True,
        ),
    ] = None
    prompt_table: Annotated[
        str | None,
        Field(min_length=1, max_length=256),
        Extension(
            "adds the virtual tokens of this prompt table of the model before the prompt (p-tuning)",
            "One of the model's `prompt_tables`; `usage` does not count its tokens. Adapters (LoRA) are separate "
            "models: `model`.",
            shared=True,
        ),
    ] = None

    def sampling_params(self, defaults: SamplingDefaults) -> SamplingParams:
        """Make the sampling parameters that all endpoints have in the same form.

        Args:
            defaults: of the model, for fields that the request leaves out.
        """
        fields = vars(self)
        values: dict[str, Any] = dict(defaults.given)
        # Both have the same defaults; an unknown field is not a parameter, even under a parameter's name.
        for name in _SAME_NAMES & self.model_fields_set & fields.keys():
            values[name] = fields[name]
        if values.get("temperature", 1.0) < GREEDY_BELOW or values.get("top_p") == 0:
            values |= {"temperature": 0.0, "top_p": 1.0}
        values["top_k"] = max(values.get("top_k", 0), 0)
        for name in _LISTS:
            if name in values:
                values[name] = tuple(values[name])
        if self.logit_bias:
            values["logit_bias"] = {int(token): _ABSOLUTE.get(bias, bias) for token, bias in self.logit_bias.items()}
        values["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        if self.no_stop_trim:
            values["include_stop_str_in_output"] = True
        if self.use_beam_search:
            values["beam_width"] = self.best_of or 1
        return SamplingParams(**values | {"n": self.candidates} | self.own_params())

    def own_params(self) -> dict[str, Any]:
        """The sampling parameters that the endpoint has in a form of its own."""
        return {}

    def truncation(self, params: SamplingParams) -> Truncation | None:
        """The truncation of the prompt; None without one.

        Args:
            params: of the answer.
        """
        if self.truncate_prompt_tokens is None:
            return None
        return Truncation(
            self.truncate_prompt_tokens, self.truncation_side, params.max_tokens or 1, params.max_tokens_name
        )

    @property
    def candidates(self) -> int:
        """The number of generations to start: more than ``n`` where the best are chosen."""
        return self.n if self.use_beam_search else max(self.n, self.best_of or 1)


_SAME_NAMES = frozenset(field.name for field in dataclasses.fields(SamplingParams))
_LISTS = ("bad_words", "stop_token_ids")


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


class StreamOptions(RequestPart):
    """Options of a stream."""

    include_usage: Annotated[bool, Parameter("adds a last chunk with the usage of the whole response", how=COUNTED)] = (
        False
    )
    continuous_usage_stats: Annotated[
        bool,
        Extension(
            "adds the usage so far to every chunk",
            "Requires `include_usage`, otherwise it is rejected with 400.",
            COUNTED,
        ),
    ] = False
    include_obfuscation: Annotated[
        bool,
        Parameter(
            "pads chunks with a field `obfuscation`, so that their sizes do not show the lengths of tokens",
            "The default is false; OpenAI's default is true. It costs about 40 bytes per chunk and disables the fast "
            "path of plain streams.",
            Capability("emulated", "every chunk is padded to a multiple of 64 bytes"),
        ),
    ] = False


class GenerationFields(SamplingFields):
    """Fields that requests of chat and of completions have in common; null means absent."""

    response_format: Annotated[
        ResponseFormat | None,
        Parameter(
            "sets the format of the answer",
            "A schema may be outside OpenAI's strict subset: the header `x-strict-schema-deviations` lists the "
            "places. A keyword that guided decoding cannot enforce is rejected with 400 and its path. OpenAI "
            "supports the first three types, for chat. The other types are extensions, and so is `schema` with "
            "`json_object`. See [tools.md](tools.md).",
            NO_GUIDES,
            neutral=({"type": "text"},),
        ),
    ] = None
    cache_salt: Annotated[
        str | None,
        Field(min_length=1, max_length=1024),
        Extension(
            "separates the prompt's KV cache blocks from requests with another salt, so that timing does not reveal "
            "the prompts of other clients",
            "As in vLLM. TensorRT-LLM's backend for Triton has no input for it.",
            shared=True,
        ),
    ] = None
    priority: Annotated[
        int,
        Field(ge=-(2**31), lt=2**31),
        Extension(
            "orders the queued requests of a caller: smaller values go first",
            "As in vLLM, but only among the requests of the same caller, from -1024 to 1023. See "
            "[reliability.md](../explanation/reliability.md#fair-shares).",
            Capability("impossible", "requests to this model are not queued: `admission` sets no limit."),
        ),
    ] = 0
    structured_outputs: Annotated[
        StructuredOutputs | None,
        Extension(
            "sets the format of the answer",
            "As in vLLM. A grammar is GBNF, as xgrammar reads it.",
            NO_GUIDES,
            shared=True,
        ),
    ] = None
    guided_json: Annotated[
        dict[str, Any] | str | None,
        Extension("is `structured_outputs.json`", "A deprecated name of vLLM.", NO_GUIDES, shared=True),
    ] = None
    guided_regex: Annotated[
        GrammarText | None,
        Extension("is `structured_outputs.regex`", "A deprecated name of vLLM.", NO_GUIDES, shared=True),
    ] = None
    guided_choice: Annotated[
        Choices | None,
        Extension("is `structured_outputs.choice`", "A deprecated name of vLLM.", NO_GUIDES, shared=True),
    ] = None
    guided_grammar: Annotated[
        GrammarText | None,
        Extension("is `structured_outputs.grammar`", "A deprecated name of vLLM.", NO_GUIDES, shared=True),
    ] = None
    json_schema: Annotated[
        dict[str, Any] | str | None,
        Extension("is `structured_outputs.json`", "The name of SGLang and llama.cpp.", NO_GUIDES),
    ] = None
    regex: Annotated[GrammarText | None, Extension("is `structured_outputs.regex`", "SGLang's name.", NO_GUIDES)] = None
    ebnf: Annotated[
        GrammarText | None,
        Extension("is `structured_outputs.grammar`", "SGLang's name.", NO_GUIDES),
    ] = None
    grammar: Annotated[
        GrammarText | None, Extension("is `structured_outputs.grammar`", "llama.cpp's name.", NO_GUIDES)
    ] = None
    stream: Annotated[bool, Parameter("sends the response as Server-Sent Events", how=BY_GATEWAY)] = False
    stream_options: Annotated[
        StreamOptions | None, Parameter("has the options of a stream", how=BY_GATEWAY, neutral=({},))
    ] = None
    user: Annotated[str | None, Annotation("names the end user", "It is written to the access log.")] = None

    @functools.cached_property
    def forms(self) -> Sequence[AnswerFormat]:
        """The formats that the request requires of its answer, at most one in a valid request.

        Raises:
            BadRequestError: a text is not valid JSON.
        """
        if self.model_fields_set.isdisjoint(_FORM_FIELDS):
            return ()
        found: list[AnswerFormat] = []
        wanted = from_response_format(self.response_format)
        if wanted is not None:
            found.append(wanted)
        if self.structured_outputs is not None:
            found += from_structured_outputs(self.structured_outputs)
        for name, kind in _FORMS.items():
            value = getattr(self, name)
            if value is not None:
                found.append(
                    schema_of(value, name, name) if kind == "json_schema" else AnswerFormat(kind, value, name, name)
                )
        return found

    def unknown_parts(self) -> dict[str, Any]:
        """The paths of unread fields of the request's objects."""
        if self.response_format is None and self.structured_outputs is None:
            return {}
        return unknown_parts(self.response_format, self.structured_outputs)

    def names(self, guided_by: str | None) -> dict[str, str]:
        """Map the engine's names of parameters in errors to this request's names.

        Args:
            guided_by: path of what the engine's guide is made from, None without one.
        """
        names = {} if guided_by is None else {"guide": guided_by}
        if self.candidates > self.n:  # candidates are compared by their log-probs
            names["logprobs"] = "best_of"
        return names

    def annotations(self) -> dict[str, Any]:
        """The request's annotations for the access log."""
        return {} if self.user is None else {"user": self.user[:512]}

    @property
    def obfuscated(self) -> bool:
        """Whether the chunks of the stream are padded."""
        return self.stream_options is not None and self.stream_options.include_obfuscation

    def given(self) -> dict[str, Any]:
        """The given fields in the order of their definition, then unknown ones."""
        given = self.model_fields_set
        return {name: value for name, value in vars(self).items() if name in given} | (self.model_extra or {})


def extras(path: str, part: BaseModel) -> dict[str, Any]:
    """The undefined fields of an object, by their paths."""
    return {f"{path}.{name}": value for name, value in (part.model_extra or {}).items()}


def plain(value: Any) -> Any:
    """The given fields of an object as JSON values; another value as it is."""
    return value.model_dump(exclude_unset=True) if isinstance(value, BaseModel) else value


def check_shared(request: GenerationFields) -> None:
    """Reject contradictions between the fields that all generating endpoints share."""
    invalid = "invalid_value"
    options = request.stream_options
    if options is not None and not request.stream:
        raise BadRequestError("'stream_options' is only allowed when 'stream' is true.", "stream_options", invalid)
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        param = "stream_options.continuous_usage_stats"
        raise BadRequestError(f"'{param}' is only allowed when 'stream_options.include_usage' is true.", param, invalid)
    if request.best_of is not None:
        _check_best_of(request, request.best_of)
    if request.prompt_logprobs is not None:
        _check_prompt_logprobs(request)
    if request.truncate_prompt_tokens == 0:
        raise BadRequestError(
            "'truncate_prompt_tokens' must be at least 1, or -1 to keep as many tokens as fit.",
            "truncate_prompt_tokens",
            invalid,
        )
    if request.max_tokens is not None and request.min_tokens > request.max_tokens:
        raise BadRequestError("'min_tokens' must be at most 'max_tokens'.", "min_tokens", invalid)
    if request.use_beam_search or request.length_penalty != 1:
        _check_beams(request)
    if request.forms or request.structured_outputs is not None:
        _check_forms(request)


def _check_best_of(request: GenerationFields, candidates: int) -> None:
    if candidates < request.n:
        raise BadRequestError(f"'best_of' must be at least 'n', which is {request.n}.", "best_of", "invalid_value")
    if request.stream and request.candidates > request.n:
        message = (
            "'best_of' cannot be streamed because the best completion is only known at the end. Set 'stream' to false."
        )
        raise BadRequestError(message, "best_of", "invalid_value")


def _check_prompt_logprobs(request: GenerationFields) -> None:
    if request.stream:
        message = "'prompt_logprobs' is not available in a stream. Set 'stream' to false."
        raise BadRequestError(message, "prompt_logprobs", "invalid_value")
    if request.prompt_logprobs == -1:
        message = "'prompt_logprobs' must be from 0 to 20; -1, the whole vocabulary, is not supported."
        raise BadRequestError(message, "prompt_logprobs", "unsupported_parameter")


def _check_forms(request: GenerationFields) -> None:
    forms = request.forms
    if len(forms) > 1:
        names = " and ".join(f"'{form.path}'" for form in forms[:2])
        raise BadRequestError(
            f"Only one format may be set for an answer, but {names} set two.", forms[1].path, "invalid_value"
        )
    given = request.structured_outputs
    if given is not None and not from_structured_outputs(given) and given.json_object is None:
        message = "'structured_outputs' must have one of json, regex, choice, grammar, json_object and structural_tag."
        raise BadRequestError(message, "structured_outputs", "invalid_value")
    for form in forms:
        check_format(form)


def _check_beams(request: GenerationFields) -> None:
    invalid = "invalid_value"
    if not request.use_beam_search:
        raise BadRequestError(
            "'length_penalty' is only allowed when 'use_beam_search' is true.", "length_penalty", invalid
        )
    if request.stream:
        message = (
            "'use_beam_search' cannot be streamed because the best beam is only known at the end. Set 'stream' "
            "to false."
        )
        raise BadRequestError(message, "use_beam_search", invalid)
    if request.n > 1:
        raise BadRequestError("'use_beam_search' returns only the best beam; set 'n' to 1.", "n", invalid)
    if (request.best_of or 1) < 2:
        raise BadRequestError(
            "'use_beam_search' requires 'best_of', the number of beams, of at least 2.", "best_of", invalid
        )
