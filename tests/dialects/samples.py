"""A sample of every parameter: a value that changes something, and how to see that it did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

TEXT = "alpha beta gamma"
"""What the engine says to the prompt of every sample, unless the sample says otherwise."""
PROMPT = "sample"
MAX_TOKENS = 40

_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
_MORE_MESSAGES = [{"role": "user", "content": PROMPT}, {"role": "assistant", "content": "so far"}]


@dataclass(frozen=True)
class Seen:
    """One answer, and what reached the engine.

    Attributes:
        body: of the answer; of a stream, all events as ``events``.
        engine: the journal's entries of its requests.
        plain: the same of the request without the parameter; None for that itself.
    """

    body: Mapping[str, Any]
    engine: list[dict[str, Any]]
    plain: Seen | None = None

    @property
    def choice(self) -> Mapping[str, Any]:
        """The first choice."""
        found: Mapping[str, Any] = self.body["choices"][0]
        return found

    @property
    def text(self) -> str:
        """The text of the first choice, in chat or completions; of a stream, of all events."""
        if "events" in self.body:
            deltas = (event["choices"][0]["delta"] for event in self.body["events"] if event["choices"])
            return "".join(delta.get("content") or "" for delta in deltas)
        choice = self.choice
        return str(choice["message"]["content"] if "message" in choice else choice["text"])

    @property
    def tokens(self) -> int:
        """How many the answer has, by its usage."""
        return int(self.body["usage"]["completion_tokens"])

    def at_engine(self, name: str) -> Any:
        """A parameter as the engine follows it, in its first request."""
        return self.engine[0]["effective"].get(name)

    @property
    def prompt_ids(self) -> list[int]:
        """The prompt as the engine read it."""
        return list(self.engine[0]["prompt_ids"])


@dataclass(frozen=True)
class Sample:
    """One parameter in use.

    Attributes:
        fields: of the request: the parameter, and what it needs beside it.
        shows: whether an answer shows its effect.
        endpoint: where it is sent.
        text: what the engine says.
        but: fields of the plain request that it goes without.
    """

    fields: Mapping[str, Any]
    shows: Callable[[Seen], bool]
    endpoint: Literal["chat", "completions"] = "chat"
    text: str = TEXT
    but: frozenset[str] = field(default_factory=frozenset)


def _engine(name: str, value: Any, **more: Any) -> Sample:
    """A parameter that the engine follows with this very value."""

    def shows(seen: Seen) -> bool:
        found = seen.at_engine(name)
        close = isinstance(value, float) and found is not None and abs(found - value) < 1e-6
        return close or bool(found == value)

    return Sample({name: value, **more}, shows)


def _guide(name: str, value: Any, text: str, **more: Any) -> Sample:
    """A parameter that becomes a guide of the engine's."""
    return Sample({name: value, **more}, lambda seen: seen.at_engine("guide") is not None, text=text)


def _changes_nothing(name: str, value: Any) -> Sample:
    """An annotation: the answer is the plain one."""
    return Sample({name: value}, lambda seen: seen.plain is not None and seen.text == seen.plain.text)


def _nowhere(_: Seen) -> bool:
    """No engine of a double has it."""
    return False


def _other_prompt(seen: Seen) -> bool:
    return seen.plain is not None and seen.prompt_ids != seen.plain.prompt_ids


def _events(seen: Seen) -> list[dict[str, Any]]:
    return list(seen.body["events"])


def _ends_early(seen: Seen) -> bool:
    return TEXT.startswith(seen.text) and seen.text != TEXT and seen.choice["finish_reason"] == "stop"


_JSON = '{"a": 1}'
_STREAM = {"stream": True}

SAMPLES: Mapping[str, Sample] = {
    "model": Sample({}, lambda seen: seen.text == TEXT),
    "messages": Sample(
        {"messages": [{"role": "user", "content": f"{PROMPT} 世界"}]}, lambda seen: "世界" in seen.engine[0]["prompt"]
    ),
    "max_tokens": Sample({"max_tokens": 3}, lambda seen: (seen.tokens, seen.choice["finish_reason"]) == (3, "length")),
    "max_completion_tokens": Sample(
        {"max_completion_tokens": 3},
        lambda seen: (seen.tokens, seen.choice["finish_reason"]) == (3, "length"),
        but=frozenset({"max_tokens"}),
    ),
    "temperature": _engine("temperature", 0.5),
    "top_p": _engine("top_p", 0.5),
    "top_k": _engine("top_k", 5),
    "min_p": _engine("min_p", 0.25),
    "seed": _engine("seed", 7),
    "presence_penalty": _engine("presence_penalty", 0.5),
    "frequency_penalty": _engine("frequency_penalty", 0.5),
    "repetition_penalty": _engine("repetition_penalty", 1.5),
    "logit_bias": Sample({"logit_bias": {"65": 5}}, lambda seen: seen.at_engine("logit_bias") == {"65": 5.0}),
    "bad_words": Sample({"bad_words": ["delta"]}, lambda seen: bool(seen.at_engine("bad_words"))),
    "n": Sample(
        {"n": 2},
        lambda seen: (
            [each["message"]["content"] for each in seen.body["choices"]] == [TEXT] * 2 == [TEXT] * len(seen.engine)
        ),
    ),
    "use_beam_search": Sample({"use_beam_search": True, "best_of": 2}, lambda seen: seen.at_engine("beam_width") == 2),
    "length_penalty": Sample(
        {"length_penalty": 0.5, "use_beam_search": True, "best_of": 2}, lambda seen: seen.at_engine("beam_width") == 2
    ),
    "best_of": Sample({"best_of": 2}, lambda seen: len(seen.engine) == 2 and len(seen.body["choices"]) == 1),
    "stop": Sample({"stop": "a ga"}, lambda seen: seen.text == "alpha bet" and _ends_early(seen)),
    "stop_token_ids": Sample({"stop_token_ids": [67]}, _ends_early),
    "include_stop_str_in_output": Sample(
        {"stop": "a ga", "include_stop_str_in_output": True}, lambda seen: seen.text == "alpha beta ga"
    ),
    "no_stop_trim": Sample({"stop": "a ga", "no_stop_trim": True}, lambda seen: seen.text == "alpha beta ga"),
    "min_tokens": _engine("min_tokens", 5),
    "ignore_eos": Sample({"ignore_eos": True}, lambda seen: seen.tokens == MAX_TOKENS),
    "skip_special_tokens": Sample(
        {"skip_special_tokens": False}, lambda seen: seen.text == "alpha<|im_start|>", text="alpha<|im_start|>"
    ),
    "prompt_logprobs": Sample({"prompt_logprobs": 0}, lambda seen: bool(seen.body["prompt_logprobs"])),
    "return_token_ids": Sample(
        {"return_token_ids": True}, lambda seen: seen.choice["token_ids"] == seen.engine[0]["answer"]["ids"]
    ),
    "return_tokens_as_token_ids": Sample(
        {"return_tokens_as_token_ids": True, "logprobs": True},
        lambda seen: seen.choice["logprobs"]["content"][0]["token"].startswith("token_id:"),
    ),
    "truncate_prompt_tokens": Sample(
        {"truncate_prompt_tokens": 12},
        lambda seen: len(seen.prompt_ids) == seen.body["usage"]["prompt_tokens"] == 12,
    ),
    "truncation_side": Sample({"truncate_prompt_tokens": 12, "truncation_side": "right"}, _other_prompt),
    "num_draft_tokens": Sample({"num_draft_tokens": 2}, _nowhere),
    "prompt_table": Sample({"prompt_table": "none"}, _nowhere),
    "response_format": _guide("response_format", {"type": "json_object"}, _JSON),
    "cache_salt": Sample({"cache_salt": "x"}, _nowhere),
    "structured_outputs": _guide("structured_outputs", {"regex": "a+"}, "aa"),
    "guided_json": _guide("guided_json", _SCHEMA, _JSON),
    "guided_regex": _guide("guided_regex", "a+", "aa"),
    "guided_choice": _guide("guided_choice", ["aa", "bb"], "aa"),
    "guided_grammar": _guide("guided_grammar", 'root ::= "a"+', "aa"),
    "json_schema": _guide("json_schema", _SCHEMA, _JSON),
    "regex": _guide("regex", "a+", "aa"),
    "ebnf": _guide("ebnf", 'root ::= "a"+', "aa"),
    "grammar": _guide("grammar", 'root ::= "a"+', "aa"),
    "stream": Sample(_STREAM, lambda seen: seen.text == TEXT),
    "stream_options": Sample(
        {**_STREAM, "stream_options": {"include_usage": True}}, lambda seen: bool(_events(seen)[-1]["usage"])
    ),
    "stream_options.include_usage": Sample(
        {**_STREAM, "stream_options": {"include_usage": True}}, lambda seen: bool(_events(seen)[-1]["usage"])
    ),
    "stream_options.continuous_usage_stats": Sample(
        {**_STREAM, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        lambda seen: all(event["usage"] for event in _events(seen)),
    ),
    "stream_options.include_obfuscation": Sample(
        {**_STREAM, "stream_options": {"include_obfuscation": True}},
        lambda seen: any("obfuscation" in event for event in _events(seen)),
    ),
    "user": _changes_nothing("user", "ann"),
    "logprobs": Sample(
        {"logprobs": True}, lambda seen: len(seen.choice["logprobs"]["content"]) == len(seen.engine[0]["answer"]["ids"])
    ),
    "top_logprobs": Sample(
        {"logprobs": True, "top_logprobs": 2},
        lambda seen: len(seen.choice["logprobs"]["content"][0]["top_logprobs"]) == 2,
    ),
    "thinking_token_budget": Sample({"thinking_token_budget": 5}, _nowhere),
    "reasoning_effort": Sample({"reasoning_effort": "low"}, _other_prompt),
    "tools": Sample({"tools": [_TOOL]}, lambda seen: '"f"' in seen.engine[0]["prompt"]),
    "tool_choice": _guide("tool_choice", "required", '[{"name": "f", "parameters": {}}]', tools=[_TOOL]),
    "parallel_tool_calls": _guide(
        "parallel_tool_calls", False, '[{"name": "f", "parameters": {}}]', tools=[_TOOL], tool_choice="required"
    ),
    "functions": Sample({"functions": [_TOOL["function"]]}, lambda seen: '"f"' in seen.engine[0]["prompt"]),
    "function_call": _guide("function_call", {"name": "f"}, "{}", functions=[_TOOL["function"]]),
    "prediction": Sample({"prediction": {"type": "content", "content": "alpha"}}, _nowhere),
    "priority": Sample({"priority": 1}, _nowhere),
    "echo": Sample(
        {"messages": _MORE_MESSAGES, "continue_final_message": True, "add_generation_prompt": False, "echo": True},
        lambda seen: seen.text == f"so far{TEXT}",
    ),
    "add_generation_prompt": Sample({"add_generation_prompt": False}, _other_prompt),
    "continue_final_message": Sample(
        {"messages": _MORE_MESSAGES, "continue_final_message": True, "add_generation_prompt": False},
        lambda seen: seen.engine[0]["prompt"].endswith("so far"),
    ),
    "chat_template": Sample({"chat_template": "{{ messages }}"}, _other_prompt),
    "chat_template_kwargs": Sample({"chat_template_kwargs": {"enable_thinking": False}}, _other_prompt),
    "documents": Sample({"documents": [{"text": "of much use"}]}, _other_prompt),
    "metadata": _changes_nothing("metadata", {"a": "b"}),
    "store": _changes_nothing("store", True),
    "service_tier": _changes_nothing("service_tier", "flex"),
    "safety_identifier": _changes_nothing("safety_identifier", "x"),
    "prompt_cache_key": _changes_nothing("prompt_cache_key", "x"),
    "prompt_cache_options": _changes_nothing("prompt_cache_options", {}),
    "prompt_cache_retention": _changes_nothing("prompt_cache_retention", "24h"),
    # Of completions, where chat does not have them in the same sense.
    "completions:prompt": Sample(
        {"prompt": f"{PROMPT} 世界"}, lambda seen: "世界" in seen.engine[0]["prompt"], endpoint="completions"
    ),
    "completions:best_of": Sample({"best_of": 2}, lambda seen: len(seen.engine) == 2, endpoint="completions"),
    "completions:logprobs": Sample(
        {"logprobs": 0}, lambda seen: len(seen.choice["logprobs"]["tokens"]) == seen.tokens, endpoint="completions"
    ),
    "completions:echo": Sample({"echo": True}, lambda seen: seen.text == PROMPT + TEXT, endpoint="completions"),
    "completions:detokenize": Sample(
        {"detokenize": False}, lambda seen: not seen.text and bool(seen.choice["token_ids"]), endpoint="completions"
    ),
    "completions:add_special_tokens": Sample(
        {"add_special_tokens": False}, lambda seen: seen.prompt_ids[:1] != [1], endpoint="completions"
    ),
}
"""By the parameter's name."""


def parse_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, without its end."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
