"""The request of ``POST /v1/completions``: its schema and its validation."""

from __future__ import annotations

import functools
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from gateway.api.openai.generation_fields import LIMIT, MOST_TOKENS, GenerationFields, check_shared
from gateway.api.openai.parameters.row import BY_GATEWAY, FROM_IDS, Extension, Parameter
from gateway.api.openai.request_json import MOST_PROMPTS
from gateway.api.openai.validation import BRANCH, validated, without_nulls
from gateway.generation import Capability
from gateway.serving.prompts import IdsPrompt, PromptSource, TextPrompt
from gateway.text.bad_request import BadRequestError

_MOST_SEQUENCES = 2048  # prompts times candidates: each is a request to the engine


def _form(value: Any) -> str | None:
    if isinstance(value, str):
        return BRANCH + "text"
    if not isinstance(value, list):
        return None
    first = value[0] if value else ""
    if isinstance(first, bool):
        return None
    for kind, form in ((str, "texts"), (int, "ids"), (list, "lists")):
        if isinstance(first, kind):
            return BRANCH + form
    return None


_Ids = Annotated[list[Annotated[int, Field(ge=0, le=MOST_TOKENS)]], Field(min_length=1, fail_fast=True)]
PromptField = Annotated[
    Annotated[str, Tag(BRANCH + "text")]
    | Annotated[list[str], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True), Tag(BRANCH + "texts")]
    | Annotated[_Ids, Tag(BRANCH + "ids")]
    | Annotated[list[_Ids], Field(min_length=1, max_length=MOST_PROMPTS, fail_fast=True), Tag(BRANCH + "lists")],
    Discriminator(
        _form,
        custom_error_type="prompt_type",
        custom_error_message=(
            "must be a string, an array of strings, an array of token ids or an array of arrays of token ids"
        ),
    ),
]


class CompletionRequest(GenerationFields):
    """A request to continue texts. Ranges and defaults are OpenAI's; what it does not have are extensions."""

    prompt: Annotated[
        PromptField,
        Parameter(
            "is the text to continue",
            "BOS is added if the tokenizer adds it, unless `add_special_tokens` is false. Absent: the start of a "
            "text, if the model has a BOS token.",
            Capability("emulated", "tokenized; token ids are used unchanged"),
            neutral=(),
        ),
    ] = ""
    max_tokens: Annotated[int | None, Field(ge=0, le=MOST_TOKENS), LIMIT] = None
    logprobs: Annotated[
        int | None,
        Field(ge=0, le=20),
        Parameter("returns the log-prob of each token and alternatives", "OpenAI allows at most 5."),
    ] = None
    echo: Annotated[
        bool,
        Parameter(
            "returns the prompt before the answer",
            "With `logprobs` the tokens of the prompt have log-probs, too, if the engine supports `prompt_logprobs`.",
            BY_GATEWAY,
        ),
    ] = False
    detokenize: Annotated[
        bool,
        Extension(
            "with false `token_ids` replace the text, which is empty",
            "As in trtllm-serve. Stop strings still end the answer.",
            FROM_IDS,
        ),
    ] = True
    add_special_tokens: Annotated[
        bool, Extension("adds BOS to the prompt if the tokenizer does so", "Never a second BOS.", BY_GATEWAY)
    ] = True

    @property
    def shows_end(self) -> bool:
        """Whether an end id has a row in the log-prob lists: it has where one token is requested.

        Evaluation harnesses request one token and remove its row, whatever token it is.
        """
        return self.logprobs is not None and self.max_tokens == 1

    @functools.cached_property
    def sources(self) -> list[PromptSource]:
        """Make the source of each prompt."""
        return _sources(self.prompt, add_special_tokens=self.add_special_tokens)

    def own_params(self) -> dict[str, Any]:
        """The parameters whose form in a completion request differs, such as ``logprobs`` and ``echo``."""
        own: dict[str, Any] = {
            "logprobs": self.logprobs is not None or self.candidates > self.n,
            "top_logprobs": self.logprobs or 0,
            "ignore_eos": self.ignore_eos or self.shows_end,
            "return_token_ids": self.return_token_ids or not self.detokenize,
        }
        if self.max_tokens == 0:
            own["max_tokens"] = 1  # the engine's minimum; the response omits the token
        if self.echo and self.logprobs is not None:
            own["prompt_logprobs"] = max(self.logprobs, self.prompt_logprobs or 0)
        return own

    def names(self, guided_by: str | None) -> dict[str, str]:
        """Map the engine's names as the base does; ``logprobs`` and ``echo`` both request log-probs."""
        names = super().names(guided_by)
        if self.logprobs is not None:
            names |= {"logprobs": "logprobs", "top_logprobs": "logprobs"}
            if self.echo and self.prompt_logprobs is None:
                names["prompt_logprobs"] = "echo"
        return names


def _sources(prompt: str | list[str] | list[int] | list[list[int]], *, add_special_tokens: bool) -> list[PromptSource]:
    """Each prompt of the request by itself."""
    if isinstance(prompt, str):
        return [TextPrompt(prompt, add_special_tokens)]
    if isinstance(prompt[0], int):
        return [IdsPrompt(prompt)]
    return [TextPrompt(one, add_special_tokens) if isinstance(one, str) else IdsPrompt(one) for one in prompt]


def parse_completion_request(fields: dict[str, Any]) -> CompletionRequest:
    """Parse and validate a request body.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    request = validated(CompletionRequest, without_nulls(fields))
    _check(request)
    return request


def _check(request: CompletionRequest) -> None:
    """Reject combinations of fields that contradict each other."""
    if request.max_tokens == 0 and not request.echo:
        message = "'max_tokens' may be 0 only when 'echo' is true."
        raise BadRequestError(message, "max_tokens", "integer_below_min_value")
    check_shared(request)
    if len(request.sources) * request.candidates > _MOST_SEQUENCES:
        message = f"A request may generate at most {_MOST_SEQUENCES} completions over all prompts; send fewer prompts."
        raise BadRequestError(message, "prompt", "array_above_max_length")
