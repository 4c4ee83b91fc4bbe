"""The OpenAPI document's facts on each operation that are not in its docstring, by the operation's id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.api.anthropic.messages.protocol import CountTokensRequest, MessagesRequest
from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.classify.protocol import ClassifyRequest
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.conversations.protocol import ConversationRequest, ConversationUpdate, ItemsRequest
from gateway.api.openai.embeddings.protocol import EmbeddingsRequest
from gateway.api.openai.pool.protocol import PoolingRequest
from gateway.api.openai.rerank.protocol import RerankRequest
from gateway.api.openai.responses.compact import CompactRequest
from gateway.api.openai.responses.protocol import ResponsesRequest
from gateway.api.openai.score.protocol import ScoreRequest
from gateway.api.openai.stored_items import ENCRYPTED, LOGPROBS
from gateway.api.openai.tokens.protocol import DetokenizeRequest, TokenizeRequest
from tools.openapi import messages, responses
from tools.openapi.chat import CITY, EXAMPLES, ChatCompletion, ChatCompletionChunk
from tools.openapi.completions import Completion, CompletionChunk
from tools.openapi.conversations import Conversation, ConversationDeleted, ItemPage
from tools.openapi.encoders import (
    ClassificationList,
    CohereRanking,
    EmbeddingList,
    PooledList,
    Ranking,
    ScoreList,
)
from tools.openapi.health import Liveness, Readiness, Version
from tools.openapi.models import ModelDescription, ModelList
from tools.openapi.parts import DEVIATIONS, GENERATING, IGNORED, answer_of, answers, body_of, parameter
from tools.openapi.parts import anthropic_answers as of_anthropic
from tools.openapi.tokens import Detokenized, RenderedChat, Tokenized, TokenizerInfo


@dataclass(frozen=True, slots=True)
class Operation:
    """A route in the document.

    Attributes:
        tag: the group of the API page that it is shown in.
        answers: by status, in addition to the errors of every request.
        parameters: of the URL and the headers.
        body: entry of the body.
    """

    tag: str
    answers: dict[int | str, dict[str, Any]]
    parameters: tuple[dict[str, Any], ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)


_CHANGING: Final = (400, 404, 415, 429, 503)
"""Error statuses of endpoints that read a body and use no engine, in addition to those of all endpoints."""
_LOCKED: Final = (*_CHANGING, 409)
_HELLO: Final[dict[str, Any]] = {"role": "user", "content": "Hello"}
_CAPITAL: Final[dict[str, Any]] = {"role": "user", "content": "What is the capital of France?"}

_PROMPT: Final[dict[str, Any]] = {"model": "MODEL", "prompt": "The capital of France is", "max_tokens": 32}
_PROMPTS: Final = {
    "One answer": _PROMPT,
    "A stream": {**_PROMPT, "stream": True},
    "Log probabilities of tokens": {**_PROMPT, "logprobs": 3},
}
_GENERATING: Final = {
    "create_chat_completion": Operation(
        "chat",
        answers(ChatCompletion, GENERATING, event=ChatCompletionChunk, headers=IGNORED | DEVIATIONS),
        body=body_of(ChatCompletionRequest, EXAMPLES),
    ),
    "create_completion": Operation(
        "completions",
        answers(Completion, GENERATING, event=CompletionChunk, headers=IGNORED),
        body=body_of(CompletionRequest, _PROMPTS),
    ),
}

_INPUT: Final[dict[str, Any]] = {"model": "MODEL", "input": "What is the capital of France?"}
_BOUNDED: Final[dict[str, Any]] = {**_INPUT, "max_output_tokens": 64}
_WEATHER: Final = {"type": "function", "name": "get_weather", "parameters": CITY, "strict": True}
_INPUTS: Final = {
    "One answer": _BOUNDED,
    "A stream": {**_BOUNDED, "stream": True},
    "A required function call": {**_BOUNDED, "tools": [_WEATHER], "tool_choice": "required"},
}
_TO_COMPACT: Final = {"model": "MODEL", "input": [_CAPITAL, {"role": "assistant", "content": "Paris."}]}
_RESPONSE: Final = parameter("response_id", "path", "Id of a response.", required=True)
_INCLUDE: Final = parameter("include", "query", f"`{LOGPROBS}` and `{ENCRYPTED}` are supported.")
_PAGING: Final = (
    parameter("order", "query", "`asc` or `desc`; the default is `desc`."),
    parameter("limit", "query", "The number of items of a page, from 1 to 100; the default is 20."),
    parameter("after", "query", "Id of the item before the page."),
    _INCLUDE,
)
_REPLAY: Final = (
    parameter("stream", "query", "`true` streams the events of a background response that was created with `stream`."),
    parameter("starting_after", "query", "The sequence number of the event after which the stream starts."),
)
_EVENT: Final = {"anyOf": list(responses.EVENTS)}
_RESPONSES: Final = {
    "create_response": Operation(
        "responses",
        answers(responses.ResponseObject, GENERATING, event=_EVENT, done=False, headers=IGNORED | DEVIATIONS),
        body=body_of(ResponsesRequest, _INPUTS),
    ),
    "compact_response": Operation(
        "responses",
        answers(responses.ResponseCompaction, GENERATING, headers=IGNORED),
        body=body_of(CompactRequest, {"A conversation": _TO_COMPACT}),
    ),
    "count_input_tokens": Operation(
        "responses",
        answers(responses.ResponseInputTokens, _CHANGING, headers=IGNORED | DEVIATIONS),
        body=body_of(ResponsesRequest, {"Input": _INPUT}),
    ),
    "retrieve_response": Operation(
        "responses",
        answers(responses.ResponseObject, (400, 404), event=_EVENT, done=False, headers=IGNORED),
        (_RESPONSE, _INCLUDE, *_REPLAY),
    ),
    "delete_response": Operation("responses", answers(responses.ResponseDeleted, (404,)), (_RESPONSE,)),
    "cancel_response": Operation("responses", answers(responses.ResponseObject, (400, 404)), (_RESPONSE,)),
    "list_input_items": Operation("responses", answers(ItemPage, (400, 404), headers=IGNORED), (_RESPONSE, *_PAGING)),
}

_CONVERSATION: Final = parameter("conversation_id", "path", "Id of a conversation.", required=True)
_ITEM: Final = parameter("item_id", "path", "Id of an item of the conversation.", required=True)
_ITEMS: Final = {"items": [{"type": "message", **_HELLO}]}
_TOPIC: Final = {"metadata": {"topic": "geography"}}
_CONVERSATIONS: Final = {
    "retrieve_conversation_item": Operation(
        "conversations", answers({"type": "object"}, (404,), headers=IGNORED), (_CONVERSATION, _ITEM, _INCLUDE)
    ),
    "delete_conversation_item": Operation("conversations", answers(Conversation, (404, 409)), (_CONVERSATION, _ITEM)),
    "list_conversation_items": Operation(
        "conversations", answers(ItemPage, (400, 404), headers=IGNORED), (_CONVERSATION, *_PAGING)
    ),
    "create_conversation_items": Operation(
        "conversations",
        answers(ItemPage, _LOCKED, headers=IGNORED),
        (_CONVERSATION, _INCLUDE),
        body_of(ItemsRequest, {"A message": _ITEMS}),
    ),
    "create_conversation": Operation(
        "conversations",
        answers(Conversation, _CHANGING, headers=IGNORED),
        body=body_of(ConversationRequest, {"With a message": {**_TOPIC, **_ITEMS}}),
    ),
    "retrieve_conversation": Operation("conversations", answers(Conversation, (404,)), (_CONVERSATION,)),
    "update_conversation": Operation(
        "conversations",
        answers(Conversation, _LOCKED, headers=IGNORED),
        (_CONVERSATION,),
        body_of(ConversationUpdate, {"A topic": _TOPIC}),
    ),
    "delete_conversation": Operation("conversations", answers(ConversationDeleted, (404,)), (_CONVERSATION,)),
}

_MESSAGES_ASKED: Final[dict[str, Any]] = {"model": "MODEL", "messages": [_CAPITAL]}
_MESSAGES: Final = {
    "create_message": Operation(
        "messages",
        of_anthropic(
            messages.AnthropicMessage,
            (504,),
            event={"anyOf": list(messages.EVENTS)},
            headers=IGNORED | DEVIATIONS,
        ),
        body=body_of(
            MessagesRequest,
            {
                "One answer": {**_MESSAGES_ASKED, "max_tokens": 64},
                "A stream": {**_MESSAGES_ASKED, "max_tokens": 64, "stream": True},
            },
        ),
    ),
    "count_message_tokens": Operation(
        "messages",
        of_anthropic(messages.AnthropicTokenCount, headers=IGNORED | DEVIATIONS),
        body=body_of(CountTokensRequest, {"A conversation": _MESSAGES_ASKED}),
    ),
}

_TO_TOKENIZE: Final[dict[str, dict[str, Any]]] = {
    "A text": {"model": "MODEL", "prompt": "Hello"},
    "A chat": {"model": "MODEL", "messages": [_HELLO]},
}
_TOKENS: Final = {
    "create_tokens": Operation(
        "tokens", answers(Tokenized, _CHANGING, headers=IGNORED), body=body_of(TokenizeRequest, _TO_TOKENIZE)
    ),
    "create_text": Operation(
        "tokens",
        answers(Detokenized, _CHANGING, headers=IGNORED),
        body=body_of(DetokenizeRequest, {"Ids": {"model": "MODEL", "tokens": [1, 2, 3]}}),
    ),
    "describe_tokenizer": Operation(
        "tokens", answers(TokenizerInfo, (400, 404, 503)), (parameter("model", "query", "Id of a served model."),)
    ),
    "render_chat_completion": Operation(
        "tokens",
        answers(RenderedChat, _CHANGING, headers=IGNORED | DEVIATIONS),
        body=body_of(ChatCompletionRequest, EXAMPLES),
    ),
}

_INPUTS_TO_ENCODE: Final = {"model": "MODEL", "input": ["A text", "Another text"]}
_TO_RERANK: Final = {"model": "MODEL", "query": "What is the capital of France?", "documents": ["Paris", "Rome"]}
_TO_SCORE: Final = {"model": "MODEL", "queries": "What is the capital of France?", "documents": ["Paris", "Rome"]}


def _encoding(request: type[Any], answer: Any, example: Mapping[str, Any]) -> Operation:
    return Operation(
        "encoders", answers(answer, GENERATING, headers=IGNORED), body=body_of(request, {"Texts": example})
    )


_ENCODERS: Final = {
    "create_embeddings": _encoding(EmbeddingsRequest, EmbeddingList, _INPUTS_TO_ENCODE),
    **dict.fromkeys(("rerank", "rerank_without_version"), _encoding(RerankRequest, Ranking, _TO_RERANK)),
    "rerank_v2": _encoding(RerankRequest, CohereRanking, _TO_RERANK),
    **dict.fromkeys(("score", "score_without_version"), _encoding(ScoreRequest, ScoreList, _TO_SCORE)),
    **dict.fromkeys(
        ("classify", "classify_without_version"), _encoding(ClassifyRequest, ClassificationList, _INPUTS_TO_ENCODE)
    ),
    "pool": _encoding(PoolingRequest, PooledList, _INPUTS_TO_ENCODE),
}

_VERSION: Final = parameter("anthropic-version", "header", "Any value: lists models in the format of Anthropic's API.")
_MODEL: Final = parameter("model_id", "path", "Id of a served model.", required=True)
_MODELS: Final = {
    "list_anthropic_models": Operation("models", of_anthropic(messages.AnthropicModelList), (_VERSION,)),
    "retrieve_anthropic_model": Operation("models", of_anthropic(messages.AnthropicModel), (_VERSION,)),
    "list_models": Operation("models", answers(ModelList)),
    "retrieve_model": Operation("models", answers(ModelDescription, (404,)), (_MODEL,)),
}

_READY: Final = Operation(
    "operations",
    {200: answer_of("All models are ready.", Readiness), 503: answer_of("A model is not ready.", Readiness)},
)
_OPERATIONS: Final = {
    "live": Operation(
        "operations",
        {200: answer_of("The process is alive.", Liveness), 503: answer_of("An engine has failed.", Liveness)},
    ),
    "health": _READY,
    "ready": _READY,
    "prometheus": Operation(
        "operations", {200: answer_of("The metrics.", {"type": "string"}, content_type="text/plain")}
    ),
    "tell_version": Operation("operations", {200: answer_of("The version.", Version)}),
}

OPERATIONS: Final[Mapping[str, Operation]] = {
    **_GENERATING,
    **_RESPONSES,
    **_CONVERSATIONS,
    **_MESSAGES,
    **_TOKENS,
    **_ENCODERS,
    **_MODELS,
    **_OPERATIONS,
}
