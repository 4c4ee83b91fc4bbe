"""Types of the responses of ``POST /v1/completions``."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict

from gateway.api.usage import CompletionUsage
from tools.openapi.objects import PromptLogprobs


class CompletionLogprobs(TypedDict):
    """Lists of equal length over the tokens of a text; the first token of an echoed prompt has no log-prob."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class _CompletionText(TypedDict):
    index: int
    text: str
    logprobs: CompletionLogprobs | None
    prompt_logprobs: NotRequired[PromptLogprobs]
    prompt_token_ids: NotRequired[list[int]]
    token_ids: NotRequired[list[int]]


class CompletionChoice(_CompletionText):
    """One choice; ``finish_reason_estimated`` is true where its finish reason is not certain, else absent."""

    finish_reason: Literal["stop", "length"]
    stop_reason: str | int | None
    finish_reason_estimated: NotRequired[bool]


class CompletionChunkChoice(_CompletionText):
    """A part of a choice; the last one has the finish reason and the stop reason, if any."""

    finish_reason: Literal["stop", "length"] | None
    stop_reason: NotRequired[str | int | None]
    finish_reason_estimated: NotRequired[bool]


class _CompletionHead(TypedDict):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str


class Completion(_CompletionHead):
    """A complete answer."""

    choices: list[CompletionChoice]
    usage: CompletionUsage


class CompletionChunk(_CompletionHead):
    """The data of one event of a stream."""

    choices: list[CompletionChunkChoice]
    usage: NotRequired[CompletionUsage | None]
    obfuscation: NotRequired[str]
