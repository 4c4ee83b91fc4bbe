"""Fields that shape how an answer is drawn and when it ends, and what they ask for in neutral terms."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from gateway.config.model_settings import MOST_DRAFT_TOKENS, SamplingDefaults
from gateway.generation import Capability, SamplingParams
from gateway.openai.parameters.row import BY_ENGINE, BY_GATEWAY, RANKED, Extension, Parameter
from gateway.openai.validation import BRANCH, text_or_list
from gateway.serving.prompts import Truncation

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
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Penalty = Annotated[float, Field(ge=-2, le=2, allow_inf_nan=False)]
BestOf = Annotated[int | None, Field(ge=1, le=20)]

LIMIT = Parameter(
    "limits the answer",
    "The same as `max_completion_tokens` in chat; both with different values are 400. Absent: the rest of the context,"
    " in completions too (OpenAI: 16 there). More than the context leaves is clamped, and `usage` tells; with"
    " `max_tokens_policy: refuse` it is 400, as with OpenAI. Completions take 0 with `echo`.",
    BY_GATEWAY,
)


class SamplingFields(BaseModel):
    """The shape of an answer but for its form; null means absent. Of several fields at fault the first is named."""

    model_config = ConfigDict(extra="allow", strict=True)

    model: Annotated[str, Field(min_length=1), Parameter("names the served model, or an alias of it", how=BY_GATEWAY)]
    max_tokens: Annotated[int | None, Field(ge=1, le=MOST_TOKENS), LIMIT] = None
    temperature: Annotated[
        float,
        Field(ge=0, le=2, allow_inf_nan=False),
        Parameter(
            "divides the logits; 0 is greedy",
            "Below 0.0001 is greedy: dividing by less overflows float32, and the outcome is the same.",
        ),
    ] = 1.0
    top_p: Annotated[_Share, Parameter("keeps the smallest set of candidates with this mass; 0 is greedy")] = 1.0
    top_k: Annotated[
        int,
        Field(ge=-1, le=MOST_TOKENS),
        Extension(
            "keeps so many candidates; 0 and -1 keep all",
            "TensorRT-LLM keeps at most 1024.",
            how=BY_ENGINE,
            neutral=(0, -1),
        ),
    ] = 0
    min_p: Annotated[_Share, Extension("drops candidates less probable than this share of the best one")] = 0.0
    seed: Annotated[
        int | None,
        Field(ge=-(2**63), lt=2**63),
        Parameter(
            "makes sampling repeatable",
            "Without one it is random. Choice i of `n` has seed + i, as 64 bits: after the largest comes the smallest."
            " The same seed gives the same answer only at equal load: batch sizes change the last bits of the engine's"
            " numbers. With `num_draft_tokens`, here or in the operator's settings, a seed gives another answer than"
            " without, and another for each number. `system_fingerprint` is absent.",
        ),
    ] = None
    presence_penalty: Annotated[
        _Penalty,
        Parameter(
            "lowers the logit of every token that occurred",
            "TensorRT-LLM counts the prompt's tokens too; OpenAI counts the answer's.",
        ),
    ] = 0.0
    frequency_penalty: Annotated[
        _Penalty,
        Parameter(
            "lowers the logit of a token by every time that it occurred",
            "TensorRT-LLM counts the prompt's tokens too; OpenAI counts the answer's.",
        ),
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        Field(gt=0, le=10, allow_inf_nan=False),
        Extension(
            "divides the logits of tokens that occurred, or multiplies them where they are negative",
            "TensorRT-LLM counts the prompt's tokens too, as vLLM does.",
        ),
    ] = 1.0
    logit_bias: Annotated[
        dict[_TokenKey, _Bias],
        Field(max_length=1024),
        Parameter(
            "is added to the logits of these ids; -100 is never, 100 is always",
            "Ids are those of the model's own tokenizer, see `POST /tokenize`; an id outside its vocabulary is 400."
            " -100 and 100 are made absolute: the engine gets a bias that no logit outweighs.",
        ),
    ] = Field(default_factory=dict)
    bad_words: Annotated[
        list[_StopString],
        Field(max_length=64),
        Extension(
            "are never written",
            "Each is banned as the token sequences that usually write it: at the start of a text, after a space and"
            " within a word. Other ways to split it into tokens stay possible.",
        ),
    ] = Field(default_factory=list)
    n: Annotated[
        int,
        Field(ge=1, le=128),
        Parameter(
            "is the number of choices",
            "Choice i has seed + i, and equals a request of its own with that seed. Prompt tokens count once in"
            " `usage`. If one choice fails, all do.",
            Capability("emulated", "by parallel requests to the engine"),
        ),
    ] = 1
    # Before best_of, so that where there are no beams it is refused by its own name.
    use_beam_search: Annotated[
        bool,
        Extension(
            "searches with `best_of` beams; the best beam is the answer",
            "Needs `best_of` from 2, `n: 1` and no stream: a beam is only known at the end.",
        ),
    ] = False
    best_of: Annotated[
        BestOf,
        Parameter(
            "makes more candidates than `n` and keeps the best",
            "With `use_beam_search` it is the number of beams. Less than `n`, or a stream, is 400.",
            RANKED,
            neutral=(1,),
        ),
    ] = None
    length_penalty: Annotated[
        float,
        Field(ge=-10, le=10, allow_inf_nan=False),
        Extension(
            "is the exponent of the length in a beam's score", "Only with `use_beam_search`; else 400 unless it is 1."
        ),
    ] = 1.0
    stop: Annotated[
        _Stop | None,
        Parameter(
            "ends the answer before this text",
            "At most 4, unless the operator allows more (`max_stops`).",
            Capability("emulated", "matched on the text by the gateway, whatever the tokens; then the engine is told"),
            neutral=([],),
            type="string, or array of at most 4",
        ),
    ] = None
    stop_token_ids: Annotated[
        list[_TokenId],
        Field(max_length=64),
        Extension("end the answer, as `stop` does"),
    ] = Field(default_factory=list)
    include_stop_str_in_output: Annotated[
        bool,
        Extension(
            "leaves what ended the answer in its text",
            "A model's own end tokens are never part of the text.",
            BY_GATEWAY,
        ),
    ] = False
    no_stop_trim: Annotated[bool, Extension("is SGLang's name of `include_stop_str_in_output`", how=BY_GATEWAY)] = False
    min_tokens: Annotated[
        int, Field(ge=0, le=MOST_TOKENS), Extension("is the number of tokens before which nothing ends the answer")
    ] = 0
    ignore_eos: Annotated[
        bool, Extension("goes on after the model's end tokens", how=Capability("emulated", "by sending no end id"))
    ] = False
    skip_special_tokens: Annotated[bool, Extension("leaves special tokens out of the text")] = True
    prompt_logprobs: Annotated[
        int | None,
        Field(ge=-1, le=20),
        Extension(
            "returns the log-prob of each prompt token, with so many alternatives",
            "-1, the whole vocabulary, is 400. In the answer beside `choices`, in completions in each choice; null for"
            " the first token, as vLLM has it. Not in a stream: 400.",
        ),
    ] = None
    return_token_ids: Annotated[bool, Extension("returns `prompt_token_ids`, and `token_ids` in each choice")] = False
    return_tokens_as_token_ids: Annotated[
        bool,
        Extension(
            "names tokens in log-probs by their ids, such as `token_id:7`",
            "`bytes` are those of the text as ever.",
            BY_GATEWAY,
        ),
    ] = False
    truncate_prompt_tokens: Annotated[
        int | None,
        Field(ge=-1, le=MOST_TOKENS),
        Extension(
            "keeps so many of the prompt's tokens, -1 as many as fit beside `max_tokens`",
            "As in vLLM: the last ones, whatever of the conversation or its template is lost; a BOS that goes before a"
            " text stays. More than fit is 400, and so is a prompt of more than 131,072 tokens, or than the context"
            " where that is more.",
            Capability("emulated", "the rendered prompt is cut by tokens"),
        ),
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"], Extension("is where `truncate_prompt_tokens` cuts", how=BY_GATEWAY)
    ] = "left"
    num_draft_tokens: Annotated[
        int | None,
        Field(ge=0, le=MOST_DRAFT_TOKENS),
        Extension(
            "lets the draft model guess so many tokens at a time, which the engine checks together; 0 switches it off",
            "What it is where a request does not say, the operator sets (`speculative`). A greedy answer is the same"
            " with any number; a sampled one is as probable, but another for the same `seed`. Above 0 it does not go"
            " with a form of the answer, demanded calls, `use_beam_search` and `prompt_logprobs`: 400. See"
            " [configuration.md](configuration.md#drafts).",
            neutral=(0,),
        ),
    ] = None
    prompt_table: Annotated[
        str | None,
        Field(min_length=1, max_length=256),
        Extension(
            "puts the virtual tokens of this prompt table of the model before the prompt (p-tuning)",
            "One of the model's `prompt_tables`; `usage` does not count its tokens. Adapters (LoRA) are models of"
            " their own: `model`.",
        ),
    ] = None

    def sampling_params(self, defaults: SamplingDefaults) -> SamplingParams:
        """The parameters of the answer, but for those that each endpoint has in a form of its own.

        Args:
            defaults: of the model, for fields that the request leaves out.
        """
        names, pick = _same_names(type(self))
        values = dict(zip(names, pick(vars(self)), strict=True))
        for name in defaults.given.keys() - self.model_fields_set:
            values[name] = defaults.given[name]
        if values["temperature"] < GREEDY_BELOW or values["top_p"] == 0:
            values |= {"temperature": 0.0, "top_p": 1.0}
        values["top_k"] = max(values["top_k"], 0)
        for name in _LISTS:
            values[name] = tuple(values[name])
        if self.logit_bias:
            values["logit_bias"] = {int(token): _absolute(bias) for token, bias in self.logit_bias.items()}
        values["stop"] = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        values["include_stop_str_in_output"] |= self.no_stop_trim
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
    def candidates(self) -> int:
        """Generations to start: more than ``n`` where the best of them are chosen."""
        return self.n if self.use_beam_search else max(self.n, self.best_of or 1)


@functools.cache
def _same_names(kind: type[SamplingFields]) -> tuple[Sequence[str], Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The fields of a request that its parameters have under the same names, and what takes their values out."""
    names = [field.name for field in dataclasses.fields(SamplingParams) if field.name in kind.model_fields]
    return names, operator.itemgetter(*names)


_LISTS = ("bad_words", "stop_token_ids")


def _absolute(bias: float) -> float:
    """A bias whose ends are made absolute: -100 is never and 100 is always, whatever the logits."""
    return math.copysign(_ABSOLUTE, bias) if abs(bias) >= _END else bias
