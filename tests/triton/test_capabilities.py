"""What is said of each request parameter, by what models declare and by the path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scripted_triton import NoTransport, configured, models, without

from gateway.generation.engine import Capability
from gateway.triton import EngineOptions
from gateway.triton.connection import Connection
from gateway.triton.dialects.ensemble import EnsembleDialect
from gateway.triton.dialects.tokens import TokensDialect


def capabilities(path: str, options: EngineOptions | None = None, **changed: Any) -> Mapping[str, Capability]:
    make = TokensDialect().make if path == "tokens" else EnsembleDialect().make
    engine = make(Connection(NoTransport()), models(**changed), "test", options or EngineOptions())
    return engine.features.capabilities


def named(found: Mapping[str, Capability], how: str) -> set[str]:
    return {name for name, capability in found.items() if capability.how == how}


NATIVE = {
    "max_tokens", "max_completion_tokens", "min_tokens", "ignore_eos", "temperature", "top_p", "top_k", "min_p", "seed",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "bad_words", "logprobs", "top_logprobs",
    "prompt_logprobs", "stream", "cached_tokens", "response_format", "structured_outputs", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "json_schema", "regex", "ebnf", "grammar", "tool_choice",
    "function_call", "lora", "cache_salt",
}  # fmt: skip
EMULATED = {"stop", "include_stop_str_in_output", "n", "echo", "return_token_ids", "detokenize", "skip_special_tokens"}
NEVER = {"suffix", "early_stopping", "num_draft_tokens", "use_draft_logits"}


def test_this_projects_engine_by_tokens_and_through_the_ensemble() -> None:
    by_tokens = {"logit_bias", "prompt_token_ids", "prompt_table", "prediction"}
    found, through = capabilities("tokens"), capabilities("ensemble")
    assert named(found, "native") == NATIVE | by_tokens | {"stop_token_ids"}
    assert named(found, "emulated") == EMULATED
    assert NEVER | {"use_beam_search", "length_penalty"} <= named(found, "impossible")
    assert named(through, "native") == NATIVE
    assert named(through, "emulated") == EMULATED | {"stop_token_ids"}
    assert by_tokens <= named(through, "impossible")
    assert set(through) == set(found)


def test_an_ensemble_that_answers_text_only() -> None:
    found = capabilities("ensemble", ensemble=without("ensemble", "output_ids", "sequence_length"))
    for name in ("logprobs", "top_logprobs", "prompt_logprobs", "stop_token_ids", "return_token_ids"):
        assert found[name].how == "impossible"
        assert "token ids" in found[name].note
    assert found["skip_special_tokens"].how == "impossible"
    assert found["temperature"].how == "native"


def test_an_engine_as_upstream_has_it() -> None:
    own = ("min_p", "num_top_log_probs", "num_prompt_log_probs", "num_cached_tokens")
    config = without("tensorrt_llm", *own)
    for parameter in ("tokens_per_block", "normalize_log_probs"):
        if parameter in config.parameters:
            del config.parameters[parameter]
    found = capabilities("tokens", tensorrt_llm=config)
    for name in ("min_p", "top_logprobs", "prompt_logprobs", "cached_tokens"):
        assert found[name].how == "impossible"
    assert "top_p" in found["min_p"].note
    assert "normalize_log_probs" in found["logprobs"].note
    allowed = EngineOptions(generation_logits=True, context_logits_tokens=128, tokens_per_block=64)
    found = capabilities("tokens", allowed, tensorrt_llm=config)
    assert (found["top_logprobs"].how, found["top_logprobs"].limit) == ("emulated", 20)
    assert found["prompt_logprobs"].how == "emulated"
    assert "128" in found["prompt_logprobs"].note
    assert found["cached_tokens"].how == "native"
    assert "64" in found["cached_tokens"].note


def test_guides_by_what_the_engine_takes() -> None:
    config = configured("tensorrt_llm", guided_decoding_guide_types="regex")
    for path in ("tokens", "ensemble"):
        found = capabilities(path, tensorrt_llm=config)
        assert (found["guided_regex"].how, found["guided_choice"].how) == ("native", "native")
        assert "regex" in found["guided_regex"].note
        for name in ("response_format", "guided_json", "guided_grammar", "tool_choice"):
            assert found[name].how == "impossible"
            assert "regex" in found[name].note
    bare = without("tensorrt_llm", "guided_decoding_guide_type", "guided_decoding_guide")
    assert "no inputs" in capabilities("tokens", tensorrt_llm=bare)["response_format"].note


def test_beam_search_where_the_engine_allows_it() -> None:
    config = configured("tensorrt_llm", max_beam_width="8")
    for path in ("tokens", "ensemble"):
        found = capabilities(path, tensorrt_llm=config)
        assert (found["use_beam_search"].how, found["use_beam_search"].limit) == ("native", 8)
        assert "streamed" in found["use_beam_search"].note
        assert found["length_penalty"].how == "native"
    bare = without("tensorrt_llm", "exclude_input_in_output")
    bare.parameters["max_beam_width"].string_value = "8"
    # Beams come with the prompt before them there, which nobody could tell from the answer.
    assert capabilities("tokens", tensorrt_llm=bare)["use_beam_search"].how == "impossible"


@pytest.mark.parametrize("path", ["tokens", "ensemble"])
def test_each_has_one_honest_sentence(path: str) -> None:
    for name, capability in capabilities(path).items():
        assert capability.note.endswith("."), name
        assert capability.note[0].isupper() or capability.note[0] in "'`", name
        assert "${" not in capability.note
    assert capabilities(path)["top_k"].limit == 1024


def test_missing_inputs_and_the_width_of_a_bias_are_named() -> None:
    found = capabilities("tokens", tensorrt_llm=without("tensorrt_llm", "seed", "bad_words_list", "end_id"))
    assert found["seed"] == Capability("impossible", "The Triton model 'tensorrt_llm' has no input seed.")
    assert "bad_words_list" in found["bad_words"].note
    assert found["ignore_eos"].how == "impossible"
    assert "tokenizer" in found["logit_bias"].note
    assert "of 777 values" in capabilities("tokens", EngineOptions(vocab_size=777))["logit_bias"].note


@pytest.mark.parametrize("path", ["tokens", "ensemble"])
@pytest.mark.parametrize("upstream", [True, False], ids=["as upstream has it", "with alternatives"])
def test_log_probs_of_an_engine_that_normalizes_them(path: str, upstream: bool) -> None:
    """They come from logits where these are allowed, else not where sampling truncates; both of one scale."""
    changed = without("tensorrt_llm", *(["num_top_log_probs"] if upstream else []))
    changed.parameters["normalize_log_probs"].string_value = "true"
    parts = {"tensorrt_llm": changed}
    if path == "ensemble":
        parts["ensemble"] = without("ensemble", *(["num_top_log_probs"] if upstream else []))
    found = capabilities(path, **parts)
    for name in ("logprobs", *([] if upstream else ["top_logprobs"])):
        assert "normalize_log_probs" in found[name].truncated
        assert "logits_for_logprobs" in found[name].note
    allowed = capabilities(path, EngineOptions(generation_logits=True), **parts)
    assert [allowed[name].truncated for name in ("logprobs", "top_logprobs")] == ["", ""]
    assert all("generation_logits" in allowed[name].note for name in ("logprobs", "top_logprobs"))
    changed.parameters["normalize_log_probs"].string_value = "0"
    assert capabilities(path, **parts)["logprobs"].truncated == ""
