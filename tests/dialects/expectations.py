"""Deviations of the dialects, each by its name: what is not expected is served, exactly and piece by piece.

The one table of what a site loses with a version and a dialect; the tests here hold the gateway to it, in both
directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.dialects.dialects import Dialect

Outcome = Literal["served", "rejected", "one event", "estimated"]
"""``rejected``: 400 that names the parameter; ``one event``: a stream has all of its text in one event; ``estimated``:
counted by tokenizing again, and the answer says so."""


class Group(NamedTuple):
    """Dialects that have a deviation, in words, and whether a dialect is one of them."""

    name: str
    holds: Callable[[Dialect], bool]


@dataclass(frozen=True)
class Deviation:
    """What some dialects cannot.

    Attributes:
        what: parameters, those of completions alone as ``completions:NAME``; ``usage``; or ``usage after stop``, that
            of an answer that a stop string ended.
        where: the dialects.
        outcome: what is expected there.
        why: the reason, in a sentence.
    """

    what: tuple[str, ...]
    where: Group
    outcome: Outcome
    why: str


EVERY = Group("every dialect", lambda _: True)
VLLM = Group("the vLLM backend", lambda dialect: dialect.kind == "vllm")
VLLM_BEFORE_24_12 = Group(
    "the vLLM backend before 24.12", lambda dialect: dialect.kind == "vllm" and dialect.version == "24.11"
)
TENSORRT_LLM = Group("models of TensorRT-LLM", lambda dialect: dialect.kind != "vllm")
TEXT = Group("models whose prompts travel as text", lambda dialect: dialect.kind != "tokens")
TEXT_ALONE = Group(
    "models that answer with text alone",
    lambda dialect: TEXT.holds(dialect) and (dialect.kind != "vllm" or VLLM_BEFORE_24_12.holds(dialect)),
)
LLMAPI = Group("the LLM API's model", lambda dialect: dialect.kind == "llmapi")
LLMAPI_WITH_BOS = Group(
    "the LLM API's model from 0.20 on", lambda dialect: dialect.kind == "llmapi" and dialect.version != "0.19"
)
LLMAPI_BEFORE_1_3 = Group(
    "the LLM API's model before 1.3", lambda dialect: dialect.kind == "llmapi" and dialect.version != "1.3"
)
BLS_OF_0_12 = Group("BLS of 0.12", lambda dialect: dialect.kind.startswith("bls") and dialect.version == "0.12")
UNGUIDED = Group(
    "engines without a guided decoder, and the vLLM backend before 25.01",
    lambda dialect: dialect.version == "24.11" if dialect.kind == "vllm" else not dialect.options.get("guided"),
)
DAMAGED = Group(
    "an ensemble, or BLS without accumulate_tokens, that decodes each response by itself",
    lambda dialect: (
        dialect.kind in ("ensemble", "bls")
        and dialect.options.get("decoupled", True)
        and dialect.settings.get("text_streaming") != "whole"
    ),
)
WHOLE = Group(
    "models that answer once, by their configuration, their version or text_streaming: whole",
    lambda dialect: (
        dialect.settings.get("text_streaming") == "whole"
        or not dialect.options.get("decoupled", True)
        or LLMAPI_BEFORE_1_3.holds(dialect)
    ),
)

_STREAM = (
    "stream", "stream_options", "stream_options.include_usage", "stream_options.continuous_usage_stats",
    "stream_options.include_obfuscation",
)  # fmt: skip
_GUIDES = (
    "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar",
    "json_schema", "regex", "ebnf", "grammar", "tool_choice", "parallel_tool_calls", "function_call",
)  # fmt: skip
_OF_IDS = ("stop_token_ids", "skip_special_tokens", "return_token_ids", "completions:detokenize", "logit_bias")
_OF_LOGPROBS = ("logprobs", "completions:logprobs", "return_tokens_as_token_ids", "best_of", "completions:best_of")

DEVIATIONS: tuple[Deviation, ...] = (
    Deviation(("min_p",), TENSORRT_LLM, "rejected", "No model of TensorRT-LLM in Triton has an input for it."),
    Deviation(("cache_salt",), EVERY, "rejected", "No model in Triton has an input for it."),
    Deviation(("top_logprobs",), TENSORRT_LLM, "rejected", "Alternatives need logits, which no engine here gathers."),
    Deviation(("top_logprobs",), VLLM_BEFORE_24_12, "rejected", "The backend returns no log-probs."),
    Deviation(("prompt_logprobs",), EVERY, "rejected",
              "They need logits, which no engine here gathers; vLLM's are not returned."),
    Deviation(("use_beam_search", "length_penalty"), EVERY, "rejected",
              "The engines are built with max_beam_width 1; vLLM has no beams among its sampling parameters."),
    Deviation(("logit_bias",), VLLM, "rejected", "The backend reads its ids as texts, which vLLM rejects."),
    Deviation(("priority",), EVERY, "rejected", "No request waits for its turn here: `admission` sets no bound."),
    Deviation(("num_draft_tokens", "prediction"), EVERY, "rejected",
              "There is no draft model here, nor an engine for drafts."),
    Deviation(("prompt_table",), EVERY, "rejected", "The served models have no prompt tables."),
    Deviation(("thinking_token_budget",), TEXT, "rejected",
              "A thought is ended by token ids, which text does not tell."),
    Deviation(("thinking_token_budget",), EVERY, "rejected", "The served models do not reason."),
    Deviation(_GUIDES, UNGUIDED, "rejected", "The engine, or its dialect, has no guided decoding."),
    Deviation(_OF_IDS, TEXT_ALONE, "rejected", "Text does not tell the tokens that it is made of."),
    Deviation(_OF_LOGPROBS, TEXT_ALONE, "rejected", "Text does not tell which part of it is of which token."),
    Deviation(_STREAM, DAMAGED, "rejected", "The bytes of characters and spaces that are lost in pieces are gone."),
    Deviation(("stream",), WHOLE, "one event", "The model answers a request once."),
    Deviation(("temperature",), BLS_OF_0_12, "rejected", "The model declares the input, and does not pass it on."),
    Deviation(("repetition_penalty", "bad_words", "min_tokens", "ignore_eos"), LLMAPI, "rejected",
              "The model has no input for it."),
    Deviation(("seed", "presence_penalty", "frequency_penalty"), LLMAPI_BEFORE_1_3, "rejected",
              "The engine's sampler drops it in silence."),
    Deviation(("truncate_prompt_tokens", "completions:add_special_tokens"), LLMAPI_WITH_BOS, "rejected",
              "The model puts BOS before every text."),
    Deviation(("truncate_prompt_tokens", "completions:add_special_tokens"), VLLM, "rejected",
              "vLLM puts BOS before every text."),
    Deviation(("usage",), LLMAPI, "estimated", "The model does not count tokens."),
    Deviation(("usage",), VLLM_BEFORE_24_12, "estimated", "The model does not count tokens."),
    Deviation(("usage after stop",), TEXT, "estimated", "The stop string cuts a text that was counted as a whole."),
)  # fmt: skip
"""All of them; of several that match, the first one counts."""


def deviations(dialect: Dialect) -> Iterator[Deviation]:
    """Those of one dialect."""
    return (each for each in DEVIATIONS if each.where.holds(dialect))


def expected(dialect: Dialect, what: str) -> Outcome:
    """What a dialect is expected to do with a parameter, or with a kind of usage."""
    return next((each.outcome for each in deviations(dialect) if what in each.what), "served")
