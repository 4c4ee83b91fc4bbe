"""The cost of features: CPU per token beside that of a plain request, for short and long answers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gateway.text.tokens import Tokenizer

from . import answers
from .client import call
from .load import Load, Result, run
from .processes import BenchmarkError, Child, SyntheticTriton
from .relay import Tell
from .subjects import (
    Subject,
    body,
    messages_body,
    responses_body,
    start,
    tokenizer_folder,
    transports,
    write_repository,
)

PLAIN = "plain"
_PACED = Load("64x20ms", 64, 20_000, 150)
_SHORT = Load("1,000 tokens", 16, 0, 1_000, rounds=8)
_LONG = Load("8,000 tokens", 16, 0, 8_000)
_FAMILIES = ("hermes", "qwen3")  # of the first, calls; the other one reasons, too


@dataclass(frozen=True)
class Feature:
    """A kind of request.

    Attributes:
        fields: fields of the request.
        family: family of its model; empty: one without calls or reasoning.
        write: the engine's answer.
        shows: a part of the client's answer when the feature is on.
        path: that is asked.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    family: str = ""
    write: answers.Write = answers.prose
    shows: bytes = b'"content":"'
    path: str = "/v1/chat/completions"

    @property
    def choices(self) -> int:
        """Answers of one request."""
        return int(self.fields.get("n", 1))


_TOOLS = {"tools": [answers.TOOL], "tool_choice": "auto"}
_FUNCTION: Any = answers.TOOL["function"]
_RESPONSES_TOOLS = {"tools": [{"type": "function", **_FUNCTION}], "tool_choice": "auto"}
_RESPONSES = "/v1/responses"
_MESSAGES_TOOLS = {"tools": [{"name": _FUNCTION["name"], "input_schema": _FUNCTION["parameters"]}]}
_MESSAGES = "/v1/messages"
_USAGE = {"include_usage": True, "continuous_usage_stats": True}
FEATURES: dict[str, Feature] = {
    PLAIN: Feature(),
    "stop strings": Feature({"stop": ["never in the answer", "nor this"]}),
    "log-probs": Feature({"logprobs": True}, shows=b'"logprob":'),
    "log-probs, 5 alternatives": Feature({"logprobs": True, "top_logprobs": 5}, shows=b'"top_logprobs":[{'),
    "usage in every chunk": Feature({"stream_options": _USAGE}, shows=b'"usage":{'),
    "tools, none called": Feature(_TOOLS, "hermes"),
    "tools, one called": Feature(_TOOLS, "hermes", answers.call, b'"tool_calls":[{"index":0,"id":'),
    "a reasoning model, no reasoning": Feature({}, "qwen3"),
    "reasoning": Feature({}, "qwen3", answers.reasoning, b'"reasoning_content":"'),
    "reasoning, with tools": Feature(_TOOLS, "qwen3", answers.reasoning, b'"reasoning_content":"'),
    "two choices": Feature({"n": 2}),
    "responses": Feature(shows=b'"type":"response.output_text.delta"', path=_RESPONSES),
    "responses with tools, none called": Feature(
        _RESPONSES_TOOLS, "hermes", shows=b'"type":"response.output_text.delta"', path=_RESPONSES
    ),
    "responses with reasoning": Feature(
        {}, "qwen3", answers.reasoning, b'"type":"response.reasoning_text.delta"', path=_RESPONSES
    ),
    "responses in the background": Feature(
        {"background": True}, shows=b'"type":"response.output_text.delta"', path=_RESPONSES
    ),
    "messages": Feature(shows=b'"type":"text_delta"', path=_MESSAGES),
    "messages with tools, none called": Feature(
        _MESSAGES_TOOLS, "hermes", shows=b'"type":"text_delta"', path=_MESSAGES
    ),
    "messages with reasoning": Feature({}, "qwen3", answers.reasoning, b'"type":"thinking_delta"', path=_MESSAGES),
}


def measure(rounds: int, tell: Tell) -> dict[str, Any]:
    """Interleaved runs of every feature on the tokens dialect and default transport.

    Raises:
        BenchmarkError: a feature is not to be seen in an answer.
    """
    subject = Subject("gateway", "tokens", transports()[0])
    tokenizer = Tokenizer.from_folder(tokenizer_folder())
    runs: list[dict[str, float]] = []
    with ExitStack() as stack:
        triton = stack.enter_context(SyntheticTriton(write_repository()))
        child = stack.enter_context(start(subject, triton, families=_FAMILIES))
        rejected = {}
        for name, feature in FEATURES.items():
            if (reason := _refusal(child, triton, tokenizer, feature)) is not None:
                rejected[name] = reason
                tell(f"skipped: {name}: {reason}")
        served = [name for name in FEATURES if name not in rejected]
        for number in range(rounds):
            first = number % len(served)  # no feature always follows the same one
            found = {}
            for name in served[first:] + served[:first]:
                found[name] = _paced(child, triton, tokenizer, FEATURES[name])
            triton.pace(0)
            triton.answer()
            for load in (_SHORT, _LONG):
                found[load.name] = _cpu_us(run(child, load, body(load.tokens)))
            runs.append(found)
            tell(f"run {number + 1} of {rounds}: { ({name: round(cpu) for name, cpu in found.items()}) }")
    return {
        "subject": subject.name,
        "rounds": rounds,
        "tokens": _PACED.tokens,
        "cpu_us": {name: round(statistics.median(found[name] for found in runs), 1) for name in runs[0]},
        "factors": {name: factor(runs, name, PLAIN) for name in served},
        "long_answer_factor": factor(runs, _LONG.name, _SHORT.name),
        "refused": rejected,
    }


def factor(runs: Sequence[Mapping[str, float]], name: str, base: str) -> float:
    """The median, over rounds, of one cost over another of the same round: the machine's speed changes between them."""
    return round(statistics.median(found[name] / found[base] for found in runs), 2)


def _paced(child: Child, triton: SyntheticTriton, tokenizer: Tokenizer, feature: Feature) -> float:
    """CPU microseconds of a token: as many at a time as without the feature, over fewer requests if they have more."""
    answer = feature.write(tokenizer, _PACED.tokens)
    load = replace(_PACED, streams=_PACED.streams // feature.choices, events=answer.events, path=feature.path)
    triton.pace(load.delay_us)
    triton.answer(answer.ids)
    return _cpu_us(run(child, load, _body(feature, load.tokens))) / feature.choices


def _cpu_us(result: Result) -> float:
    return result.cpu_us or 0.0


def _body(feature: Feature, tokens: int) -> Path:
    fields = {"model": "-".join(filter(None, ("bench", feature.family))), **feature.fields}
    write = {_RESPONSES: responses_body, _MESSAGES: messages_body}.get(feature.path, body)
    return write(tokens, **fields)


def _refusal(child: Child, triton: SyntheticTriton, tokenizer: Tokenizer, feature: Feature) -> str | None:
    """The gateway's refusal of such a request; None when it serves it and the feature shows."""
    triton.pace(0)
    triton.answer(feature.write(tokenizer, _PACED.tokens).ids)
    try:
        said = call(child, "POST", feature.path, _body(feature, _PACED.tokens).read_bytes())
    except BenchmarkError as error:
        return str(error)
    if feature.shows not in said:
        raise BenchmarkError(f"{feature.shows!r} is not in an answer that should have it: {said[-2000:]!r}")
    return None
