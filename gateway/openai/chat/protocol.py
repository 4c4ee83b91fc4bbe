"""The request of ``POST /v1/chat/completions``: its schema, and from bytes to a validated request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.config.model_settings import SamplingDefaults
from gateway.openai.body import Body, parse_object
from gateway.openai.chat.messages import AssistantMessage, Messages, Prediction, conversation, for_template, in_groups
from gateway.openai.chat.tool_checks import (
    check_parameters_of,
    continuation_conflicts,
    history_conflicts,
    tool_conflicts,
)
from gateway.openai.chat.tools import (
    MOST_TOOLS,
    FunctionCallChoice,
    FunctionDefinition,
    FunctionTool,
    Offered,
    ToolChoice,
    offered,
)
from gateway.openai.generation import (
    GREEDY_BELOW,
    MOST_TOKENS,
    Conflict,
    GenerationFields,
    StreamOptions,
    pruned,
    pruned_inside,
    refuse_conflicts,
    shared_conflicts,
    without_nulls,
)
from gateway.openai.validation import error_of
from gateway.serving.ask import ChatPrompt, Options

__all__ = ["GREEDY_BELOW", "ChatCompletionRequest", "StreamOptions", "parse_chat_request"]

_MetadataKey = Annotated[str, Field(min_length=1, max_length=64)]
_MetadataValue = Annotated[str, Field(max_length=512)]
_Identifier = Annotated[str, Field(max_length=512)]


class PromptCacheOptions(BaseModel):
    """How a prompt is cached: an annotation, since the engine decides."""

    model_config = ConfigDict(extra="allow", strict=True)

    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = Field(default=None, max_length=16)


class ChatCompletionRequest(GenerationFields):
    """A request to continue a conversation. Ranges and defaults are OpenAI's; extensions are marked.

    Null means absent. What becomes of parameters that are not listed here, docs/parameters.md tells.
    """

    messages: Messages = Field(description="The conversation so far.")
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MOST_TOKENS, description="As max_tokens.")
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="Needs logprobs.")
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    tools: list[FunctionTool] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_choice: ToolChoice | None = Field(default=None, description="auto when absent and there are tools.")
    parallel_tool_calls: bool = Field(default=True, description="Whether more than one call may be made.")
    functions: list[FunctionDefinition] = Field(
        default_factory=list, min_length=1, max_length=MOST_TOOLS, description="Old tools."
    )
    function_call: FunctionCallChoice | None = Field(default=None, description="Old tool_choice.")
    prediction: Prediction | None = Field(default=None, description="How the answer is thought to begin.")
    echo: bool = Field(default=False, description="Extension: repeats the message that is continued.")
    add_generation_prompt: bool | None = Field(default=None, description="Extension; true when absent.")
    continue_final_message: bool = Field(default=False, description="Extension.")
    chat_template: str | None = Field(default=None, min_length=1, max_length=65536, description="Extension.")
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, max_length=64, description="Extension.")
    documents: list[dict[str, Any]] = Field(default_factory=list, fail_fast=True, description="Extension.")
    metadata: dict[_MetadataKey, _MetadataValue] = Field(default_factory=dict, max_length=16)
    store: bool = False
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = None
    safety_identifier: str | None = Field(default=None, max_length=64)
    prompt_cache_key: _Identifier | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None

    def prompt(self, tools: Sequence[Mapping[str, Any]] | None = None) -> ChatPrompt:
        """The conversation in neutral terms.

        Args:
            tools: definitions that the template shows.
        """
        variables = dict(self.chat_template_kwargs)
        if self.reasoning_effort is not None:
            variables["reasoning_effort"] = self.reasoning_effort
        return ChatPrompt(
            conversation(self.messages),
            tools=tools or None,
            documents=self.documents or None,
            add_generation_prompt=not self.continue_final_message and self.add_generation_prompt is not False,
            continue_final_message=self.continue_final_message,
            template=self.chat_template,
            variables=variables,
        )

    def offered(self) -> Offered:
        """Its tools and the choice among them, in whichever form they came."""
        return offered(self.tools, self.tool_choice, self.functions, self.function_call)

    def options(self, defaults: SamplingDefaults) -> Options:
        """The rest of the request in neutral terms.

        Args:
            defaults: of the model, for what the request leaves out.
        """
        options = self.base_options(defaults)
        by_new_name = self.max_completion_tokens is not None
        ranked = self.candidates > self.n
        return dataclasses.replace(
            options,
            max_tokens=self.max_completion_tokens if by_new_name else options.max_tokens,
            max_tokens_name="max_completion_tokens" if by_new_name else "max_tokens",
            n=self.candidates,
            logprobs=self.logprobs or ranked,
            top_logprobs=self.top_logprobs or 0,
            prediction=None if self.prediction is None else self.prediction.text,
        )

    def echoed(self) -> str:
        """What the answer begins with: the text that it continues, where that is wanted."""
        return str(for_template(self.messages[-1])["content"]) if self.echo else ""

    def names(self, guided_by: str | None) -> dict[str, str]:
        """See the base."""
        names = super().names(guided_by)
        if self.logprobs:
            names.pop("logprobs", None)
        return names | {"prompt": "messages"}

    def annotations(self) -> dict[str, Any]:
        """What the request says of itself; for the access log."""
        said: dict[str, Any] = {
            "safety_identifier": self.safety_identifier,
            "metadata": self.metadata or None,
            "store": self.store or None,
            "service_tier": self.service_tier,
            "prompt_cache_key": self.prompt_cache_key,
            "prompt_cache_retention": self.prompt_cache_retention,
        }
        return super().annotations() | {name: value for name, value in said.items() if value is not None}

    def unknown_parts(self) -> dict[str, Any]:
        """Fields that nobody reads inside of its objects, messages and tools, by their paths."""
        tools = [(f"tools[{index}]", tool) for index, tool in enumerate(self.tools)]
        inside = zip(self.offered().paths, self.offered().functions, strict=True)
        messages = [(f"messages[{index}]", message) for index, message in enumerate(self.messages)]
        found = super().unknown_parts()
        for path, part in (*messages, *tools, *inside):
            found |= {f"{path}.{name}": value for name, value in (part.model_extra or {}).items()}
        return found


def parse_chat_request(body: Body) -> ChatCompletionRequest:
    """Parse and validate a request body.

    Raises:
        OpenAIError: 400, naming the parameter at fault.
    """
    data = _without_nulls(parse_object(body))
    data |= {"messages": in_groups(data["messages"])} if "messages" in data else {}
    try:
        request = ChatCompletionRequest.model_validate(data)
    except ValidationError as error:
        raise error_of(error) from None
    refuse_conflicts(_conflicts(request))
    return request


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Null means absent, in tools and messages too."""
    data = without_nulls(data)
    for key, inside in (("tools", "function"), ("functions", "")):
        if isinstance(data.get(key), list):
            data[key] = [pruned_inside(tool, inside) for tool in data[key]]
    if isinstance(data.get("messages"), list):
        data["messages"] = [pruned(message) for message in data["messages"]]
        for message in data["messages"]:
            if isinstance(message, dict) and isinstance(message.get("content"), list):
                message["content"] = [pruned(part) for part in message["content"]]
            if isinstance(message, dict) and isinstance(message.get("tool_calls"), list):
                message["tool_calls"] = [pruned_inside(call, "function") for call in message["tool_calls"]]
    return data


def _conflicts(request: ChatCompletionRequest) -> Iterator[Conflict]:
    """What no single field shows: message, param, code."""
    invalid = "invalid_value"
    limits = (request.max_tokens, request.max_completion_tokens)
    if None not in limits and limits[0] != limits[1]:
        message = "'max_tokens' and 'max_completion_tokens' mean the same limit but differ; send one of them."
        yield message, "max_tokens", invalid
    if request.max_completion_tokens is not None and request.min_tokens > request.max_completion_tokens:
        yield "'min_tokens' must be at most 'max_completion_tokens'.", "min_tokens", invalid
    if request.top_logprobs and not request.logprobs:
        yield "'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs", invalid
    if request.continue_final_message:
        if request.add_generation_prompt:
            message = "'continue_final_message' and 'add_generation_prompt' exclude each other; send one of them."
            yield message, "continue_final_message", invalid
        yield from continuation_conflicts(request.messages[-1])
    if request.prediction is not None and request.use_beam_search:
        message = "'prediction' and 'use_beam_search' exclude each other: a prediction is one sequence."
        yield message, "prediction", invalid
    if request.echo:
        yield from _echo_conflicts(request)
    yield from _tool_conflicts(request)
    yield from shared_conflicts(request)


def _tool_conflicts(request: ChatCompletionRequest) -> Iterator[Conflict]:
    invalid = "invalid_value"
    nothing = (None, "none", "auto")
    new = "tools" if request.tools else "tool_choice" if request.tool_choice not in nothing else None
    old = "functions" if request.functions else "function_call" if request.function_call not in nothing else None
    if new and old:
        yield f"'{new}' and '{old}' exclude each other: the one is the old form of the other.", old, invalid
    offers = request.offered()
    yield from tool_conflicts(offers, request.function_call if offers.old or old else request.tool_choice)
    yield from history_conflicts(request.messages)
    check_parameters_of(offers)
    wanted = request.forms()
    if wanted and offers.callable and wanted[0].kind not in {"json_object", "json_schema"}:
        message = f"'{wanted[0].path}' and tools that may be called exclude each other; set 'tool_choice' to 'none'."
        yield message, wanted[0].path, invalid


def _echo_conflicts(request: ChatCompletionRequest) -> Iterator[Conflict]:
    invalid = "invalid_value"
    if request.tools or request.functions:
        yield "'echo' and 'tools' exclude each other: an answer that calls tools repeats no text.", "echo", invalid
    if not request.continue_final_message or not isinstance(request.messages[-1], AssistantMessage):
        message = (
            "'echo' repeats the assistant's message that the answer continues: make it the last message and set"
            " 'continue_final_message' to true."
        )
        yield message, "echo", invalid
