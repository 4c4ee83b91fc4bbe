"""What clients are told when something fails."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.generation.engine import AdapterNotCachedError, AdapterRejectedError, ErrorKind
from gateway.triton.error_mapping import engine_error

K = ErrorKind


@pytest.mark.parametrize(
    "row",
    [
        ("INTERNAL", "Executor failed process requestId 4: Prompt length (9000) exceeds maximum input length (8192).",
         K.CONTEXT_LENGTH),
        (None, "in ensemble 'ensemble', Prompt length (9) exceeds maximum input length (8). Set log level to info",
         K.CONTEXT_LENGTH),
        ("INTERNAL", "The prompt length (9) exceeds max sequence length (8)", K.CONTEXT_LENGTH),
        ("INTERNAL", "Input length (9) + max new tokens (1) exceeds max_seq_len (8)", K.CONTEXT_LENGTH),
        (None, "Error generating request: default_max_tokens (-3) must be greater than 0", K.CONTEXT_LENGTH),
        (None, "Error generating request: `prompt_token_ids` length (9) is greater than `max_seq_len` (8)",
         K.CONTEXT_LENGTH),
        ("UNAVAILABLE", "[request id: X] Exceeds maximum queue size", K.QUEUE_FULL),
        (None,
         "in ensemble 'e', Failed to process the request(s) for model 'x': Maximum queue size of 2 has been reached",
         K.QUEUE_FULL),
        ("UNAVAILABLE", "Request timeout expired", K.UNAVAILABLE),
        ("INVALID_ARGUMENT", "Request for unknown model: 'x' is not found", K.UNAVAILABLE),
        (None, "Request for unknown model: 'x' has no available versions", K.UNAVAILABLE),
        ("NOT_FOUND", "'x' version 1 has no available versions", K.UNAVAILABLE),
        ("UNAVAILABLE", "Request for unknown model: 'x' version 1 is not at ready state", K.UNAVAILABLE),
        ("UNAVAILABLE", "failed to connect to all addresses; Connection refused", K.UNAVAILABLE),
        ("UNAVAILABLE", "Socket closed", K.UNAVAILABLE),
        ("UNAVAILABLE", "Cancelling all calls", K.UNAVAILABLE),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", K.TIMEOUT),
        ("CANCELLED", "CANCELLED", K.CANCELLED),
        (None, "request was cancelled", K.CANCELLED),
        ("INVALID_ARGUMENT", "unexpected inference input 'foo' for model 'ensemble'", K.INTERNAL),
        (None, "expected 4 inputs but got 3 inputs for model 'tensorrt_llm'", K.INTERNAL),
        ("INTERNAL", "A value is required for request_output_len", K.INTERNAL),
        (None, "Model 'x' only supports [64] matryoshka dimensions, use other output dimensions will",
         K.INVALID_REQUEST, "dimensions"),
        ("INTERNAL", "Guided decoding is not enabled: guided_decoding_backend was not set up",
         K.INVALID_REQUEST, "guide"),
        (None, "Executor failed process requestId 4 due to the following error: Guided decoding error: no",
         K.INVALID_REQUEST, "guide"),
        ("INTERNAL", 'EBNF parser error at line 1, column 10: Rule "a" is not defined', K.INVALID_REQUEST, "guide"),
        (None, "inference input 'seed' data-type is 'FP32', but model 'm' expects 'UINT64'", K.INTERNAL),
        (None, "in ensemble 'e', input byte size mismatch for input 'seed' for model 'm'. Expected 8, got 4",
         K.INTERNAL),
        (None, "requestId 7 is already in progress, request is ignored.", K.INTERNAL),
        (None, "Requested beam width 4 is larger than the maximum beam width 1", K.INVALID_REQUEST, "use_beam_search"),
        ("INTERNAL", "lora_task_id 7 not found in cache. Please send LoRA weights with request",
         K.INVALID_REQUEST, "model"),
        (None, "return_generation_logits: the engine does not gather generation logits", K.INVALID_REQUEST, "logprobs"),
        (None, "Server is stopping, scheduler for model has stopped accepting new inference requests", K.UNAVAILABLE),
        ("UNAVAILABLE", "Stream removed (Socket closed (GOAWAY received; Error code: 0; Debug Text: ))", K.UNAVAILABLE),
        (None, "min_p is not supported by the engine", K.INVALID_REQUEST, "min_p"),
        (None, "embedding_bias is not supported by the engine's sampler", K.INVALID_REQUEST, "logit_bias"),
        (None, "runtime_top_p is not supported by the engine", K.INVALID_REQUEST, "top_p"),
        (None, "return_context_logits is not supported by the engine", K.INVALID_REQUEST, "prompt_logprobs"),
        (None, "mrope_position_deltas is not supported by the engine", K.INVALID_REQUEST),
        (None, "Requested beam width 2 is not 3: the engine searches that many beams for every request",
         K.INVALID_REQUEST, "best_of"),
        (None, "LoRA task 7 not found in cache.", K.INVALID_REQUEST, "model"),
        (None, "PEFT Cache is full. Could not store taskId=5", K.QUEUE_FULL),
        (None, "something entirely new", K.INTERNAL),
    ],
)  # fmt: skip
def test_kinds_and_the_parameter_at_fault(row: tuple[Any, ...]) -> None:
    status, text, kind, *param = row
    error = engine_error(status, text)
    assert (error.kind, error.param) == (kind, param[0] if param else None)
    assert text in error.detail


def test_a_beam_search_of_another_width_is_told_apart_from_none_at_all() -> None:
    other = engine_error(None, "Requested beam width 1 is not 3: the engine searches that many beams for every request")
    assert (other.kind, "with one fixed width" in other.message) == (ErrorKind.INVALID_REQUEST, True)
    none = engine_error(None, "Requested beam width 4 is larger than the maximum beam width 1")
    assert none.message == "This deployment's engine does not support beam search."


@pytest.mark.parametrize(
    ("text", "prompt", "most"),
    [
        ("`default_max_tokens` (-3) must be greater than 0, `default_max_tokens` (-3) = max_seq_len (100) - "
         "`splited_prompt_len` (102) - `query_token_len` (1)", "102", "100"),
        ("The sum of prompt length (70.0), query length (1) should not exceed max_num_tokens (64)", "70", "64"),
        ("`prompt_token_ids` length (9) is greater than `max_seq_len` (8)", "9", "8"),
        ("in ensemble 'e', Prompt length (9000) exceeds maximum input length (8192)", "9000", "8192"),
    ],
)  # fmt: skip
def test_the_context_length_is_told_in_numbers(text: str, prompt: str, most: str) -> None:
    error = engine_error(None, f"Error generating request: {text}")
    assert f"length is exceeded: the prompt is too long: {prompt} tokens > {most} maximum" in error.message


@pytest.mark.parametrize("status", [None, "INTERNAL", "UNKNOWN", "CANCELLED", "UNAVAILABLE", "INVALID_ARGUMENT"])
def test_backend_text_never_reaches_a_message(status: str | None) -> None:
    secret = 'Traceback (most recent call last): File "/opt/secret/model.py", line 3'
    for text in (secret, f"Prompt length (9) exceeds maximum input length {secret}", f"unexpected shape {secret}"):
        message = engine_error(status, text).message
        assert "secret" not in message
        assert "Traceback" not in message


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("frequency_penalty is not supported by the engine's sampler", "frequency_penalty"),
        ("stop_words_list: a word of more than one token is not supported by the engine's beam search",
         "stop_words_list"),
        ("in ensemble 'e', num_top_log_probs is not supported by the engine", "top_logprobs"),
        ("Executor failed process requestId 4 due to the following error: min_tokens is not supported by the engine",
         "min_tokens"),
    ],
)  # fmt: skip
def test_what_an_engine_has_no_use_for_is_named(text: str, named: str) -> None:
    error = engine_error(None, text)
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert error.message == f"This deployment's engine does not support {named}."


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("Executor failed process requestId 4 due to: LoRA task 7 not found in cache. Please send LoRA weights", 1),
        ("in ensemble 'e', LoRA task 7 not found in cache. Please send LoRA weights with request", 1),
        ("This model has no lora", 0),
    ],
)  # fmt: skip
def test_only_an_adapter_that_was_dropped_is_worth_sending_again(text: str, again: int) -> None:
    error = engine_error(None, text)
    assert isinstance(error, AdapterNotCachedError) == bool(again)
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert "7" not in error.message


@pytest.mark.parametrize(
    "text",
    [
        "lora: the engine was not built with the LoRA plugin",
        "lora module attn_qkv not enabled for this model",
        "[TensorRT-LLM][ERROR] Assertion failed: lora_weights has to few values for attn_q (/src/loraUtils.cpp:128)",
        "Assertion failed: Invalid low_rank (65). low_rank must be smaller than mMaxLowRank (64)",
        "in ensemble 'e', lora_config: Expected layerId to be in the range [0, numModelLayers)",
        "lora_weights is not supported by the engine: it serves only the adapters of its folder",
        "Error generating request: lora_path (/models/secret) does not exist.",
        "Error generating request: LoRA rank 64 is more than max_lora_rank",
    ],
)
def test_an_adapter_that_does_not_fit_is_the_deployment_s_mistake(text: str) -> None:
    error = engine_error(None, text)
    assert isinstance(error, AdapterRejectedError)
    assert error.kind is ErrorKind.INTERNAL
    assert error.detail == text
