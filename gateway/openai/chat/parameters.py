"""Parameters that are known and not served: what they may say nevertheless, and the refusal when they say more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Said about the request, with no effect on the answer. Accepted whatever they hold.
ANNOTATIONS = frozenset(
    {
        "user",
        "metadata",
        "store",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
    }
)


def _one_of(*neutral: Any) -> Callable[[Any], bool]:
    return lambda value: any(value == item and type(value) is type(item) for item in neutral)


def _number(neutral: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (int, float)) and not isinstance(value, bool) and value == neutral


def _empty(value: Any) -> bool:
    return value in ([], {})


def _never(value: Any) -> bool:
    del value
    return False


# Name -> whether a value changes nothing, so that serving without the parameter is true to the request. The second half
# is not OpenAI's but known from other servers: these change the answer, so they are refused rather than ignored.
_NEUTRAL: Mapping[str, Callable[[Any], bool]] = {
    "n": _one_of(1),
    "tools": _empty,
    "tool_choice": _one_of("none", "auto"),
    "parallel_tool_calls": _one_of(True, False),
    "functions": _empty,
    "function_call": _one_of("none", "auto"),
    "response_format": lambda value: value == {"type": "text"},
    "logit_bias": _empty,
    "audio": _never,
    "modalities": lambda value: value == ["text"],
    "moderation": _never,
    "prediction": _never,
    "reasoning_effort": _one_of("none"),
    "service_tier": _one_of("auto", "default"),
    "verbosity": _one_of("medium"),
    "web_search_options": _never,
    "best_of": _one_of(1),
    "echo": _one_of(False),
    "suffix": _one_of(""),
    "min_p": _number(0),
    "min_tokens": _number(0),
    "repetition_penalty": _number(1),
    "length_penalty": _number(1),
    "use_beam_search": _one_of(False),
    "ignore_eos": _one_of(False),
    "stop_token_ids": _empty,
    "bad_words": _empty,
    "allowed_token_ids": _never,
    "logits_processors": _empty,
    "prompt_logprobs": _never,
    "chat_template": _never,
    "chat_template_kwargs": _empty,
    "add_generation_prompt": _one_of(True),
    "continue_final_message": _one_of(False),
    "guided_json": _never,
    "guided_regex": _never,
    "guided_choice": _never,
    "guided_grammar": _never,
    "structured_outputs": _never,
}


def refused(parameters: Mapping[str, Any]) -> str | None:
    """The first parameter whose value would change the answer and cannot be served; None when there is none."""
    return next((name for name, value in parameters.items() if name in _NEUTRAL and not _NEUTRAL[name](value)), None)


def unknown(parameters: Mapping[str, Any]) -> list[str]:
    """Names that nobody defined as far as this gateway knows."""
    return [name for name in parameters if name not in _NEUTRAL and name not in ANNOTATIONS]
