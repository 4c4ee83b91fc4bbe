"""How each request parameter is served by a model of Triton's vLLM backend, in words for people."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.generation.engine import Capability
from gateway.triton.abilities import MAX_TOP_LOGPROBS
from gateway.triton.dialects.tensorrt_llm import GUIDED
from gateway.triton.parameters import INPUTS
from gateway.triton.vllm_dialect import GUIDE_KEYS, SAMPLING_KEYS, VllmDialect

_NOT_THERE = "The vLLM backend has no parameter for it."
_TEXT_ONLY = "This vLLM backend returns text without token ids; they are available since 24.12."
_NO_BEAMS = "The sampling parameters of vLLM have no beam search; use `n` instead."
_NO_DRAFTS = "The vLLM backend does not accept draft tokens; speculative decoding is configured in its model.json."

# In place of the sentence on the missing parameter.
_MISSING: Mapping[str, str] = {
    "logit_bias": "The vLLM backend reads the ids of a bias as strings, which vLLM rejects; use `bad_words`.",
    "prompt_logprobs": "The vLLM backend does not return log-probs of prompts.",
    "prompt_token_ids": "Prompts are sent to the vLLM backend as text.",
    "prompt_table": "Virtual tokens cannot be sent as text.",
    "cached_tokens": "The vLLM backend does not report it.",
    "cache_salt": f"{_NOT_THERE[:-1]}; set enable_prefix_caching to false in its model.json.",
    "suffix": "The engine continues text and cannot fill a gap; put the context into the prompt.",
    **dict.fromkeys(("prediction", "num_draft_tokens", "use_draft_logits"), _NO_DRAFTS),
    **dict.fromkeys(("use_beam_search", "length_penalty", "early_stopping"), _NO_BEAMS),
}
_OF_IDS = ("stop_token_ids", "return_token_ids", "detokenize", "skip_special_tokens", "logprobs", "top_logprobs")


def vllm_capabilities(dialect: VllmDialect) -> dict[str, Capability]:
    """Decide for every request parameter that depends on the engine how it is served.

    Args:
        dialect: the way to ask the model.

    Returns:
        A capability by the name of OpenAI's parameter or of the extension.
    """
    found = {name: Capability("impossible", _MISSING.get(name, _NOT_THERE)) for name in (*INPUTS, *_MISSING)}
    found |= {name: _by(name, key.note) for name, key in SAMPLING_KEYS.items()}
    found |= {
        "temperature": _by("temperature", "0 is greedy; vLLM raises values between 0 and 0.01 to 0.01"),
        "max_tokens": _by("max_tokens"),
        "max_completion_tokens": _by("max_tokens"),
        "seed": _by("seed"),
        "ignore_eos": _by("ignore_eos"),
        "bad_words": _by(
            "bad_words", "vLLM bans each as its usual token sequences, with and without a space before it"
        ),
        "lora": _by("lora_name"),
        "stream": Capability("native", "By decoupled responses."),
        "n": Capability("emulated", "As parallel engine requests with the seeds seed, seed + 1 and so on."),
        "stop": Capability(
            "emulated", "Matched on the text in the gateway, which then ends the request in the engine."
        ),
        "include_stop_str_in_output": Capability(
            "emulated", "The gateway cuts the answer after the stop instead of before it."
        ),
        "echo": Capability("emulated", "The gateway puts the prompt before the answer; without log-probs only."),
        **_of_ids(dialect),
        **_guides(dialect),
    }
    return found


def _by(key: str, note: str = "", limit: int | None = None) -> Capability:
    return Capability("native", f"By vLLM's sampling parameter {key}{'; ' + note if note else ''}.", limit)


def _of_ids(dialect: VllmDialect) -> dict[str, Capability]:
    if not dialect.token_ids:
        found = dict.fromkeys(_OF_IDS, Capability("impossible", _TEXT_ONLY))
        return found | {"min_tokens": _by("min_tokens", "stop strings still end the answer")}
    ids = Capability("emulated", "The ids are taken from vLLM's log-probs, which the gateway then requests.")
    own = "from the distribution set by logprobs_mode in its model.json, by default the model's distribution"
    return {
        "stop_token_ids": _by("stop_token_ids", "the id counts as a token of the answer"),
        **dict.fromkeys(("return_token_ids", "detokenize", "skip_special_tokens"), ids),
        "logprobs": _by("logprobs", own),
        "top_logprobs": _by("logprobs", f"{own}; at most as many as max_logprobs in its model.json", MAX_TOP_LOGPROBS),
    }


def _guides(dialect: VllmDialect) -> dict[str, Capability]:
    if dialect.guide_field is None:
        nothing = Capability(
            "impossible", "This vLLM backend does not support guided decoding; it is available since 25.01."
        )
        return dict.fromkeys(GUIDED, nothing)
    found = {}
    for name, needed in GUIDED.items():
        taken = ", ".join(kind for kind in needed if kind in GUIDE_KEYS)
        found[name] = _by(dialect.guide_field, f"guides of the kind {taken}" if taken else "")
    return found
