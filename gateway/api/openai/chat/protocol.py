"""The request of ``POST /v1/chat/completions``: its schema and its validation."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from gateway.api.openai.chat.messages import (
    AssistantMessage,
    Messages,
    Prediction,
    ToolMessage,
    check_continuation,
    check_history,
    conversation,
    for_template,
)
from gateway.api.openai.chat.tools import (
    MOST_TOOLS,
    CustomDefinition,
    CustomTool,
    FunctionCallChoice,
    FunctionDefinition,
    GrammarFormat,
    OfferedTools,
    Tool,
    ToolChoice,
    check_parameters_of,
    check_tools,
    offered,
)
from gateway.api.openai.generation_fields import (
    GREEDY_BELOW,
    MOST_TOKENS,
    BestOf,
    GenerationFields,
    StreamOptions,
    check_shared,
    extras,
)
from gateway.api.openai.parameters.row import (
    BY_GATEWAY,
    NO_DRAFTS,
    NO_GUIDES,
    RANKED,
    Annotation,
    Extension,
    Parameter,
)
from gateway.api.openai.validation import RequestPart, pruned, pruned_inside, validated, without_nulls
from gateway.generation import Capability
from gateway.serving.prompts import ChatPrompt
from gateway.text.bad_request import BadRequestError

__all__ = ["GREEDY_BELOW", "ChatCompletionRequest", "StreamOptions", "parse_chat_request"]

_MOST_TOOL_BYTES = 2**20
_MetadataKey = Annotated[str, Field(min_length=1, max_length=64)]
_MetadataValue = Annotated[str, Field(max_length=512)]
_Identifier = Annotated[str, Field(max_length=512)]
_TIER_PRIORITIES = {"fast": -1, "priority": -1, "flex": 1}
_SAID = (
    "safety_identifier",
    "metadata",
    "store",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
)  # of the request itself
_TIERS: dict[str, Literal["flex", "priority"]] = {"fast": "priority", "flex": "flex", "priority": "priority"}


class PromptCacheOptions(RequestPart):
    """Options of prompt caching: an annotation, since the engine decides."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: str | None = Field(default=None, max_length=16)


_SHOWN = Capability("emulated", "shown by the chat template; the model family's parser reads the calls")


class ChatCompletionRequest(GenerationFields):
    """A request to continue a conversation. Ranges and defaults are OpenAI's; extensions are marked.

    Null means absent. What becomes of parameters that are not listed here, docs/reference/parameters.md tells.
    """

    best_of: Annotated[
        BestOf,
        Extension(
            "generates more candidates than `n` and returns the best; with `use_beam_search` it is the number of beams",
            "OpenAI supports it for completions only. A value below `n`, or a stream, is rejected with 400.",
            RANKED,
            neutral=(1,),
        ),
    ] = None
    messages: Annotated[
        Messages,
        Parameter(
            "is the conversation: roles system, developer, user, assistant, tool and function; content as a string or"
            " text parts",
            "A developer message becomes a system message if the template has no developer role. Images and audio "
            "are rejected. The text of control tokens in content stays text (`escape_special_tokens`).",
            Capability("emulated", "rendered by the chat template and tokenized"),
        ),
    ]
    max_completion_tokens: Annotated[
        int | None,
        Field(ge=1, le=MOST_TOKENS),
        Parameter("limits the tokens of the answer", "The same as `max_tokens`.", BY_GATEWAY),
    ] = None
    logprobs: Annotated[
        bool,
        Parameter(
            "returns the log-prob of each token",
            "They are computed by the engine after temperature, bias and penalties, before top_k, top_p and min_p. "
            "OpenAI does not document its distribution. If normalize_log_probs of the engine is not false, they "
            "would be relative to the candidates that top_k, top_p or temperature 0 leave, and such requests are "
            "rejected with 400 unless logits_for_logprobs is true.",
        ),
    ] = False
    top_logprobs: Annotated[
        int | None,
        Field(ge=0, le=20),
        Parameter(
            "returns alternatives of each token",
            "Without `logprobs` it is rejected with 400, as by OpenAI.",
            neutral=(0,),
        ),
    ] = None
    reasoning_effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None,
        Parameter(
            "is passed to the chat template",
            "Only the chat template can use it; with a template that does not read it, it is an unsupported hint.",
            Capability("impossible", "the chat template of this model does not read it."),
            neutral=("none",),
            hint=True,
        ),
    ] = None
    thinking_token_budget: Annotated[
        int | None,
        Field(ge=-1, le=MOST_TOKENS),
        Extension(
            "limits the tokens of the reasoning: at the limit the reasoning ends and the answer follows",
            "As in vLLM; -1 is no limit. The marker that ends the reasoning counts as completion tokens and has no "
            "log-probs. With `prompt_logprobs` or `use_beam_search` it is rejected with 400. See "
            "[tools.md](tools.md#reasoning).",
            Capability("emulated", "the gateway ends the reasoning and continues with a second request to the engine."),
            neutral=(-1,),
            hint=True,
            shared=True,
        ),
    ] = None
    tools: Annotated[
        list[Tool],
        Field(json_schema_extra={"maxItems": MOST_TOOLS}),
        Parameter(
            "lets the model call functions and custom tools",
            "If the template does not support tools, or the model's format of tool calls is unknown, only required "
            "calls work (`tool_choice`). The model sees a custom tool as a function with one string; its format is "
            "enforced if it is a regular expression and the engine has guided decoding, otherwise it is only part of "
            "the description. See [tools.md](tools.md).",
            _SHOWN,
        ),
    ] = Field(default_factory=list)
    tool_choice: Annotated[
        ToolChoice | None,
        Parameter(
            "forbids, allows or requires tool calls",
            "Required calls need guided decoding by JSON schema. With `none` the template shows no tools, with "
            "`auto` the allowed tools, otherwise all tools. The default is `auto` if there are tools.",
            NO_GUIDES,
            neutral=("none", "auto"),
        ),
    ] = None
    parallel_tool_calls: Annotated[
        bool,
        Parameter(
            "allows several tool calls in one response",
            how=Capability("emulated", "by guided decoding; without guided decoding calls after the first are dropped"),
        ),
    ] = True
    functions: Annotated[
        list[FunctionDefinition],
        Field(min_length=1, max_length=MOST_TOOLS),
        Parameter(
            "is the deprecated form of `tools`",
            "Responses have the deprecated form, too: at most one `function_call`.",
            _SHOWN,
            neutral=(),
        ),
    ] = Field(default_factory=list)
    function_call: Annotated[
        FunctionCallChoice | None,
        Parameter("is the deprecated form of `tool_choice`", how=NO_GUIDES, neutral=("none", "auto")),
    ] = None
    prediction: Annotated[
        Prediction | None,
        Parameter(
            "is the expected start of the answer: predicted tokens that match need fewer engine steps",
            "A prediction does not change greedy answers, and sampled answers keep their probabilities (with "
            "`triton_repo`'s reference engine they do not change either). It helps up to the first token that "
            "differs, while OpenAI's servers can match later parts: `usage` counts the tokens up to this point as "
            "accepted and all others as rejected; rejected tokens are not `completion_tokens`. An empty text "
            "predicts nothing; an empty list of parts is rejected with 400.",
            NO_DRAFTS,
        ),
    ] = None
    echo: Annotated[
        bool,
        Extension(
            "returns the text that the answer continues before the answer",
            "Only if the last message is an assistant message that is continued (`continue_final_message`), and "
            "without tools; otherwise it is rejected with 400.",
            BY_GATEWAY,
        ),
    ] = False
    add_generation_prompt: Annotated[
        bool | None, Extension("opens the assistant's turn", how=BY_GATEWAY, neutral=(True,))
    ] = None
    continue_final_message: Annotated[
        bool,
        Extension(
            "ends the prompt inside the last message, which the answer continues",
            "With `add_generation_prompt: true` it is rejected with 400, as by vLLM. No new assistant turn is opened.",
            Capability("emulated", "the rendered prompt is cut after the text of the last message"),
        ),
    ] = False
    chat_template: Annotated[
        str | None,
        Field(min_length=1, max_length=65536),
        Extension(
            "is a Jinja template to use instead of the model's chat template",
            "It can contain control tokens. It is rendered in a separate process with limits of 5 s and 512 MiB; a "
            "template that exceeds them is rejected with 400.",
            Capability("impossible", "the operator does not allow it (allow_request_template)."),
            shared=True,
        ),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any],
        Field(max_length=64),
        Extension(
            "sets variables of the chat template, such as `enable_thinking`",
            "The template's built-in variables (`messages`, `tools`, special tokens) are rejected with 400. A "
            "variable that the template does not read is an unknown field.",
            BY_GATEWAY,
            shared=True,
        ),
    ] = Field(default_factory=dict)
    documents: Annotated[
        list[dict[str, Any]],
        Field(fail_fast=True),
        Extension(
            "are passed to the chat template",
            how=Capability(
                "impossible", "the chat template of this model does not show documents; put them into a message."
            ),
            shared=True,
        ),
    ] = Field(default_factory=list)
    metadata: Annotated[
        dict[_MetadataKey, _MetadataValue],
        Field(max_length=16),
        Annotation(
            "annotates the request; keys have at most 64 characters, values at most 512",
            "It is written to the access log; the gateway has no list of stored completions.",
            neutral=(),
        ),
    ] = Field(default_factory=dict)
    store: Annotated[bool, Annotation("asks to store the response", "Chat completions are never stored.")] = False
    service_tier: Annotated[
        Literal["auto", "default", "flex", "scale", "priority", "fast"] | None,
        Annotation(
            "chooses a service tier",
            "If requests are queued (`admission`), `priority` requests of a caller (or `fast`, which is the same) go "
            "before its other requests, and `flex` requests after them; otherwise there is one tier, and the response "
            "says `default`.",
            neutral=("auto", "default"),
        ),
    ] = None
    safety_identifier: Annotated[
        str | None, Field(max_length=128), Annotation("names the end user", "It is written to the access log.")
    ] = None
    prompt_cache_key: Annotated[
        _Identifier | None, Annotation("groups requests with a common prefix", "The KV cache does not need a key.")
    ] = None
    prompt_cache_options: Annotated[
        PromptCacheOptions | None, Annotation("says how to cache the prompt", "The engine decides.")
    ] = None
    prompt_cache_retention: Annotated[
        Literal["in_memory", "24h"] | None, Annotation("says how long to cache the prompt", "The engine decides.")
    ] = None

    _waits: bool = PrivateAttr(default=False)
    _most_stops: int = PrivateAttr(default=4)

    def limit_stops(self, limit: int) -> None:
        """Set another API's greatest number of stop strings; the operator's setting replaces it."""
        self._most_stops = limit

    def take_turns(self) -> None:
        """Note that the request may be queued, so that its tier has an effect."""
        self._waits = True

    def prompt(self, tools: Sequence[Mapping[str, Any]] | None = None) -> ChatPrompt:
        """Make the source of the prompt.

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

    @functools.cached_property
    def offered(self) -> OfferedTools:
        """The request's tools and the choice among them, from the new or the old form."""
        return offered(self.tools, self.tool_choice, self.functions, self.function_call)

    def own_params(self) -> dict[str, Any]:
        """The parameters whose form in a chat request differs, such as ``logprobs`` and ``max_completion_tokens``."""
        own: dict[str, Any] = {
            "logprobs": self.logprobs or (self.best_of is not None and self.candidates > self.n),
            "top_logprobs": self.top_logprobs or 0,
            "most_stops": self._most_stops,
            "prediction": None if self.prediction is None else self.prediction.text,
        }
        if self._waits and not self.priority:
            own["priority"] = _TIER_PRIORITIES.get(self.service_tier or "", 0)
        if self.max_completion_tokens is not None:
            own |= {"max_tokens": self.max_completion_tokens, "max_tokens_name": "max_completion_tokens"}
        return own

    @functools.cached_property
    def echoed(self) -> str:
        """The text that the answer continues and begins with, where ``echo`` is true; else empty."""
        return str(for_template(self.messages[-1])["content"]) if self.echo else ""

    @property
    def tier(self) -> Literal["default", "flex", "priority"] | None:
        """The tier that serves the request, where the request has ``service_tier``."""
        if self.service_tier is None:
            return None
        if not self._waits:
            return "default"
        return _TIERS.get(self.service_tier, "default")

    def names(self, guided_by: str | None) -> dict[str, str]:
        """Map the engine's names as the base does; the prompt is ``messages``."""
        names = super().names(guided_by)
        if self.logprobs:
            names.pop("logprobs", None)
        return names | {"prompt": "messages"}

    def annotations(self) -> dict[str, Any]:
        """The request's annotations for the access log."""
        if self.model_fields_set.isdisjoint(_SAID):
            return {} if self.user is None else super().annotations()
        said: dict[str, Any] = {
            **{name: getattr(self, name) for name in _SAID},
            "metadata": self.metadata or None,
            "store": self.store or None,
        }
        return super().annotations() | {name: value for name, value in said.items() if value is not None}

    def unknown_parts(self) -> dict[str, Any]:
        """The paths of unread fields of objects, messages and tools."""
        found = super().unknown_parts()
        for name, parts in (("messages", self.messages), ("tools", self.tools)):
            for index, part in enumerate(parts):
                found |= extras(f"{name}[{index}]", part)
                if isinstance(part, ToolMessage):
                    found |= dict.fromkeys([f"{name}[{index}].content[{place}]" for place in part.unread], True)
        for index, tool in enumerate(self.tools):
            if isinstance(tool, CustomTool):
                found |= _extras_of_custom(f"tools[{index}].custom", tool.custom)
        if self.prompt_cache_options is not None:
            found |= extras("prompt_cache_options", self.prompt_cache_options)
        if self.tools or self.functions:
            for path, function in zip(self.offered.paths, self.offered.functions, strict=True):
                found |= extras(path, function)
                if function.readable is not function.parameters:
                    found[f"{path}.parameters"] = True
        return found


def _extras_of_custom(path: str, tool: CustomDefinition) -> dict[str, Any]:
    found = extras(path, tool)
    if tool.format is not None:
        found |= extras(f"{path}.format", tool.format)
    if isinstance(tool.format, GrammarFormat):
        found |= extras(f"{path}.format.grammar", tool.format.grammar)
    return found


def parse_chat_request(fields: dict[str, Any]) -> ChatCompletionRequest:
    """Parse and validate a request body.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    data = _without_nulls(fields)
    if isinstance(tools := data.get("tools"), list) and len(tools) > MOST_TOOLS:
        message = f"Invalid value for 'tools': must have at most {MOST_TOOLS} items."
        raise BadRequestError(message, "tools", "array_above_max_length")
    return chat_request(data)


def chat_request(data: Mapping[str, Any]) -> ChatCompletionRequest:
    """Validate the fields of a request; null fields are left out before, and other APIs have no bound for tools.

    Raises:
        BadRequestError: naming the parameter at fault.
    """
    request = validated(ChatCompletionRequest, data)
    if len(request.tools) > MOST_TOOLS and (size := len(json.dumps(data["tools"]))) > _MOST_TOOL_BYTES:
        message = f"Invalid value for 'tools': must be at most {_MOST_TOOL_BYTES} bytes of JSON, but has {size}."
        raise BadRequestError(message, "tools", "array_above_max_length")
    _check(request)
    return request


def _without_nulls(data: dict[str, Any]) -> dict[str, Any]:
    """Null means absent, in tools and messages too."""
    data = without_nulls(data)
    if isinstance(data.get("tools"), list):
        data["tools"] = [pruned_inside(pruned_inside(tool, "function"), "custom") for tool in data["tools"]]
    if isinstance(data.get("functions"), list):
        data["functions"] = [pruned(function) for function in data["functions"]]
    if isinstance(data.get("messages"), list):
        data["messages"] = [pruned(message) for message in data["messages"]]
        for message in data["messages"]:
            if not isinstance(message, dict):
                continue
            if isinstance(content := message.get("content"), list):
                message["content"] = [pruned(part) for part in content]
            if isinstance(calls := message.get("tool_calls"), list):
                message["tool_calls"] = [pruned_inside(pruned_inside(call, "function"), "custom") for call in calls]
    return data


def _check(request: ChatCompletionRequest) -> None:
    """Reject combinations of fields that contradict each other."""
    invalid = "invalid_value"
    if request.max_completion_tokens is not None:
        _check_limit(request, request.max_completion_tokens)
    if request.top_logprobs and not request.logprobs:
        raise BadRequestError("'top_logprobs' is only allowed when 'logprobs' is true.", "top_logprobs", invalid)
    if request.continue_final_message:
        if request.add_generation_prompt:
            message = (
                "'continue_final_message' and 'add_generation_prompt' cannot be used together; send only one of them."
            )
            raise BadRequestError(message, "continue_final_message", invalid)
        check_continuation(request.messages[-1])
    if request.use_beam_search and request.prediction is not None:
        message = "'prediction' cannot be used with 'use_beam_search'."
        raise BadRequestError(message, "prediction", invalid)
    if request.echo:
        _check_echo(request)
    if request.thinking_token_budget not in (None, -1):
        _check_budget(request)
    if request.tools or request.functions or request.tool_choice is not None or request.function_call is not None:
        _check_tools(request)
    check_history(request.messages)
    if request.tools or request.functions:
        _check_definitions(request)
    check_shared(request)


def _check_limit(request: ChatCompletionRequest, most: int) -> None:
    """The limit has an older name."""
    if request.max_tokens not in (None, most):
        message = (
            "'max_tokens' and 'max_completion_tokens' have the same meaning but different values; send only "
            "one of them."
        )
        raise BadRequestError(message, "max_tokens", "invalid_value")
    if request.min_tokens > most:
        raise BadRequestError("'min_tokens' must be at most 'max_completion_tokens'.", "min_tokens", "invalid_value")


def _check_budget(request: ChatCompletionRequest) -> None:
    """The reasoning is ended in the middle of one sequence, and the prompt grows by it."""
    other = "prompt_logprobs" if request.prompt_logprobs is not None else "use_beam_search"
    if other == "prompt_logprobs" or request.use_beam_search:
        message = f"'thinking_token_budget' cannot be used with '{other}'."
        raise BadRequestError(message, "thinking_token_budget", "invalid_value")


def _check_tools(request: ChatCompletionRequest) -> None:
    invalid = "invalid_value"
    nothing = (None, "none", "auto")
    new = "tools" if request.tools else "tool_choice" if request.tool_choice not in nothing else None
    old = "functions" if request.functions else "function_call" if request.function_call not in nothing else None
    if new and old:
        raise BadRequestError(
            f"'{new}' and '{old}' cannot be used together; '{old}' is deprecated, send '{new}' only.", old, invalid
        )
    offers = request.offered
    check_tools(offers, request.function_call if offers.old or old else request.tool_choice)


def _check_definitions(request: ChatCompletionRequest) -> None:
    offers = request.offered
    check_parameters_of(offers)
    wanted = request.forms
    if wanted and offers.callable and wanted[0].kind not in {"json_object", "json_schema"}:
        message = f"'{wanted[0].path}' cannot be used with tools unless 'tool_choice' is 'none'."
        raise BadRequestError(message, wanted[0].path, "invalid_value")


def _check_echo(request: ChatCompletionRequest) -> None:
    invalid = "invalid_value"
    if request.tools or request.functions:
        raise BadRequestError("'echo' cannot be used with 'tools'.", "echo", invalid)
    if not request.continue_final_message or not isinstance(request.messages[-1], AssistantMessage):
        message = (
            "'echo' requires that the last message has the role 'assistant' and that 'continue_final_message' is true."
        )
        raise BadRequestError(message, "echo", invalid)
