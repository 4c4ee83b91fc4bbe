"""The request of ``POST /v1/chat/completions``: its schema, and from bytes to a validated request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from gateway.generation import Sampling, engine_seed
from gateway.openai.body import parse_object
from gateway.openai.chat import parameters
from gateway.openai.chat.messages import BRANCH, Message, for_template, text_or_list
from gateway.openai.errors import OpenAIError
from gateway.openai.validation import error_of
from gateway.serving.ask import ChatAsk

# Below this a temperature is greedy: dividing logits by it overflows float32, and the outcome is the same.
GREEDY_BELOW = 1e-4
_MOST_TOKENS = 2**31 - 1  # the engine's int32

_StopString = Annotated[str, Field(min_length=1, max_length=1024)]
_Stop = Annotated[
    Annotated[_StopString, Tag(BRANCH + "text")]
    | Annotated[list[_StopString], Field(max_length=64), Tag(BRANCH + "parts")],
    Discriminator(
        text_or_list, custom_error_type="stop", custom_error_message="A string or an array of strings is expected"
    ),
]


class StreamOptions(BaseModel):
    """Options of a stream.

    Attributes:
        include_usage: whether a last chunk carries the usage of the whole answer.
        include_obfuscation: only false: chunks are never padded.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    include_usage: bool = False
    include_obfuscation: bool = False


class ChatCompletionRequest(BaseModel):
    """A request to continue a conversation. Ranges and defaults are OpenAI's; ``top_k`` is an extension.

    Null means absent. Parameters of OpenAI's that are not listed here are accepted with values that change nothing and
    refused otherwise; unknown ones are named in the response header ``x-ignored-parameters``.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    model: str = Field(min_length=1, description="Id of a served model.")
    messages: list[Message] = Field(min_length=1, description="The conversation so far.")
    max_tokens: int | None = Field(default=None, ge=1, le=_MOST_TOKENS, description="As max_completion_tokens.")
    max_completion_tokens: int | None = Field(
        default=None, ge=1, le=_MOST_TOKENS, description="Tokens at most; absent: the rest of the context."
    )
    temperature: float = Field(default=1.0, ge=0, le=2, allow_inf_nan=False, description="Below 0.0001: greedy.")
    top_p: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False, description="0: greedy.")
    top_k: int = Field(default=0, ge=-1, le=_MOST_TOKENS, description="Extension: candidates kept; 0 and -1: all.")
    n: int = Field(default=1, ge=1, le=128, description="Only 1.")
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63, description="Any 64-bit integer.")
    stop: _Stop | None = Field(default=None, description="At most 4, unless the operator allows more.")
    presence_penalty: float = Field(default=0.0, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float = Field(default=0.0, ge=-2, le=2, allow_inf_nan=False)
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="Needs logprobs.")
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None

    def ask(self) -> ChatAsk:
        """The request in neutral terms."""
        messages = [for_template(message) for message in self.messages]
        greedy = self.temperature < GREEDY_BELOW or self.top_p == 0
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        return ChatAsk(
            messages=messages,
            size=sum(len(message["content"]) for message in messages),
            sampling=Sampling(
                temperature=0.0 if greedy else self.temperature,
                top_p=1.0 if greedy else self.top_p,
                top_k=max(self.top_k, 0),
                seed=engine_seed(self.seed),
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
            ),
            max_tokens=self.max_tokens or self.max_completion_tokens,
            stop=stop,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs or 0,
        )

    def ignored(self) -> list[str]:
        """Names of the parameters that nobody knows and that are served without."""
        names = parameters.unknown(self.model_extra or {})
        if self.stream_options:
            names += [f"stream_options.{name}" for name in self.stream_options.model_extra or {}]
        for index, message in enumerate(self.messages):
            names += [f"messages[{index}].{name}" for name in message.model_extra or {}]
        return names


def parse_chat_request(body: bytes) -> ChatCompletionRequest:
    """Parse and validate a request body.

    Raises:
        OpenAIError: 400, naming the parameter at fault.
    """
    data = _without_nulls(parse_object(body))
    try:
        request = ChatCompletionRequest.model_validate(data)
    except ValidationError as error:
        raise error_of(error) from None
    for message, param, code in _conflicts(request):
        raise OpenAIError(400, message, param=param, code=code)
    return request


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Null means absent: in the request, in stream_options, in messages and in their content parts."""
    data = {key: value for key, value in data.items() if value is not None}
    if isinstance(data.get("stream_options"), dict):
        data["stream_options"] = _pruned(data["stream_options"])
    if isinstance(data.get("messages"), list):
        data["messages"] = [_pruned(message) for message in data["messages"]]
        for message in data["messages"]:
            if isinstance(message, dict) and isinstance(message.get("content"), list):
                message["content"] = [_pruned(part) for part in message["content"]]
    return data


def _pruned(value: Any) -> Any:
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def _conflicts(request: ChatCompletionRequest) -> Iterator[tuple[str, str, str | None]]:
    """What no single field shows: message, param, code."""
    name = parameters.refused({"n": request.n, **(request.model_extra or {})})
    if name is not None:
        yield f"The parameter {name!r} is not supported with this value.", name, "unsupported_parameter"
    limits = (request.max_tokens, request.max_completion_tokens)
    if None not in limits and limits[0] != limits[1]:
        yield (
            "'max_tokens' and 'max_completion_tokens' mean the same limit but differ; send one of them.",
            "max_tokens",
            "invalid_value",
        )
    if request.stream_options is not None and not request.stream:
        yield "'stream_options' is only allowed when 'stream' is true.", "stream_options", "invalid_value"
    if request.stream_options is not None and request.stream_options.include_obfuscation:
        yield "Chunks are never obfuscated.", "stream_options.include_obfuscation", "unsupported_parameter"
    if request.top_logprobs and not request.logprobs:
        yield "'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs", "invalid_value"
