"""Maps errors of Triton, the engine and the transport to errors for clients, in one table.

Wire contract 2.10 and 9.2. The backend's own text never becomes part of a message: it may hold paths and
tracebacks.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gateway.generation.engine import (
    AdapterNotCachedError,
    AdapterRejectedError,
    EngineError,
    EngineFinish,
    ErrorKind,
    MalformedOutputError,
    context_exceeded,
    too_many_tokens,
)
from gateway.triton.parameters import parameter_of

_PREFIX = re.compile(r"^(?:\[request id: [^\]]*\]\s*|in ensemble '[^']*',\s*)+")
_CONTEXT = re.compile(
    r"(?:prompt|input) length.{0,40}exceeds|exceeds.{0,20}max(?:imum)?[ _](?:input|sequence|seq)[ _]len"
    # The LLM API: by the longest sequence, and by the longest prompt of one step.
    r"|default_max_tokens`?.{0,40}(?:must|should) be greater than 0|is greater than `?max_seq_len"
    r"|prompt length.{0,120}(?:should|must)(?: not|n't) exceed"
    # vLLM.
    r"|is longer than the maximum model length of"
    # This project's encoder.
    r"|tokens; the model reads at most",
    re.IGNORECASE,
)
# The prompt's and the most tokens, where they stand in another order than those of the others.
_OF_DEFAULT = re.compile(r"max_seq_len \((?P<most>\d+)\).{0,20}prompt_len`? \((?P<prompt>\d+)\)")
_OF_VLLM = re.compile(r"prompt \(length (?P<prompt>\d+)\).{0,60}maximum model length of (?P<most>\d+)")
_OF_ENCODER = re.compile(r"has (?P<prompt>\d+) tokens; the model reads at most (?P<most>\d+)")
_OF_STEP = re.compile(r"prompt length \((?P<prompt>\d+)(?:\.0)?\).*max_num_tokens \((?P<most>\d+)\)")
# The LLM API's model where it loads an adapter by itself; its text may name folders.
_NOT_LOADABLE = re.compile(r"^error generating request: .*lora", re.IGNORECASE | re.DOTALL)
# Its versions up to 1.2 hand the flag `streaming` to the engine as an adapter.
_FLAG_AS_ADAPTER = re.compile(r"'bool' object has no attribute")
_NOT_HELD = re.compile(r"lora task \d+ not found in cache", re.IGNORECASE)
# TensorRT-LLM's loraUtils.cpp, on an adapter that does not fit the engine.
_BAD_ADAPTER = re.compile(
    r"lora_(?:weights|keys|config)\b|\blora module .{0,80}not enabled|expected (?:layerid|adaptersize) to be"
    r"|invalid low_rank|(?:not|without).{0,40}lora plugin",
    re.IGNORECASE,
)
_GUIDE = re.compile(
    r"guided decoding error|xgrammar|ebnf (?:lexer|parser) error"
    # vLLM.
    r"|invalid grammar|grammar error|failed to (?:convert|transform) .{0,40}grammar|structured[ _]output",
    re.IGNORECASE,
)
# The vLLM backend's words for sampling parameters that its vLLM does not take: it has lost what was wrong with them.
_NOT_TAKEN = re.compile(r"'NoneType' object has no attribute 'lora_name'")
_NUMBER = re.compile(r"\((\d+)\)")
# What our engines say of an input that they have no use for; the name is that of a tensor, never of anything secret.
_NO_USE = re.compile(r"(?:^|: )(\w+)(?::[^:]*)? is not supported by the engine(?:'s (?:sampler|beam search))?\.?$")


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    kind: ErrorKind
    message: str
    param: str | None


def _rule(pattern: str, kind: ErrorKind, message: str, param: str | None = None) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), kind, message, param)


UNSUPPORTED = "unsupported_parameter"
NO_GUIDED_DECODING = "This deployment's engine has no guided decoding."
"""The sentence for clients where the engine says that it was not set up for guides."""
LLMAPI_WITH_ADAPTERS = (
    "This deployment's engine rejects every request because its version of the LLM API's model fails with "
    "lora_config in model.yaml."
)
"""That where each request fails: the flag ``streaming`` stands in the place of an adapter."""

TOO_LONG = context_exceeded("prompt is too long.")
"""That of a prompt whose length the engine does not tell."""

_QUEUE_FULL = "The engine's queue is full; try again later."
_BAD_GUIDE = "The engine does not support this guide (schema, regular expression, grammar or structural tag)."
_NOT_LOADED = "The model is currently not loaded in Triton."
_NO_LOGITS = "This deployment's engine does not store the logits that these log-probabilities need."
_NO_ADAPTER = "This deployment's engine does not have this adapter."
_BAD_FIT = "The engine cannot use the adapter that the gateway sent with the request."
_REJECTED_PARAMETERS = "The vLLM engine of this deployment rejected the sampling parameters of the request."
_IN_PROGRESS = "The engine rejected the request because it already has a request with this id."
_REJECTED = "Triton rejected the gateway's request: the tensors of the model have changed."

# What serving treats by its class: pattern, class, kind, message, parameter at fault, code.
_BY_CLASS: tuple[tuple[re.Pattern[str], type[EngineError], ErrorKind, str, str | None, str | None], ...] = (
    (_NOT_HELD, AdapterNotCachedError, ErrorKind.INVALID_REQUEST, _NO_ADAPTER, "model", UNSUPPORTED),
    (_BAD_ADAPTER, AdapterRejectedError, ErrorKind.INTERNAL, _BAD_FIT, None, None),
    (_NOT_LOADABLE, AdapterRejectedError, ErrorKind.INTERNAL, _BAD_FIT, None, None),
    (_FLAG_AS_ADAPTER, EngineError, ErrorKind.INTERNAL, LLMAPI_WITH_ADAPTERS, None, None),
    (_NOT_TAKEN, EngineError, ErrorKind.INTERNAL, _REJECTED_PARAMETERS, None, None),
    (_GUIDE, EngineError, ErrorKind.INVALID_REQUEST, _BAD_GUIDE, "guide", "invalid_value"),
)

# The first match wins. A status does not take part: errors inside a stream come without one.
_BY_TEXT = (
    _rule(r"maximum queue size", ErrorKind.QUEUE_FULL, _QUEUE_FULL),
    _rule(
        r"peft cache is full|no done tasks to evict",
        ErrorKind.QUEUE_FULL,
        "The engine's adapter cache is full; try again later.",
    ),
    _rule(r"request timeout expired", ErrorKind.UNAVAILABLE, "The request waited too long in Triton's queue."),
    _rule(
        r"request for unknown model|has no available versions|is not at ready state|is not ready|is not found",
        ErrorKind.UNAVAILABLE,
        _NOT_LOADED,
    ),
    _rule(
        r"shutting down|unloading|is (?:being )?stopp(?:ing|ed)\b|exiting",
        ErrorKind.UNAVAILABLE,
        "Triton is shutting down.",
    ),
    _rule(
        r"unhealthy vllm engine|enginecore encountered an issue|enginedeaderror|background loop (?:has errored|is not)",
        ErrorKind.UNAVAILABLE,
        "The model's engine has failed.",
    ),
    _rule(
        r"requested sample logprobs of \d+, which is greater than max allowed",
        ErrorKind.INVALID_REQUEST,
        "This deployment's engine returns fewer alternatives per token than requested.",
        "top_logprobs",
    ),
    _rule(
        r"guided decod.{0,60}(?:not set up|not configured|not enabled|disabled)|no guided decoding",
        ErrorKind.INVALID_REQUEST,
        NO_GUIDED_DECODING,
        "guide",
    ),
    _rule(
        r"matryoshka",  # vLLM
        ErrorKind.INVALID_REQUEST,
        "This model cannot return vectors of so many dimensions; leave 'dimensions' out.",
        "dimensions",
    ),
    _rule(r"gather.{0,30}logits|logits.{0,30}gather", ErrorKind.INVALID_REQUEST, _NO_LOGITS, "logprobs"),
    _rule(r"\blora\b", ErrorKind.INVALID_REQUEST, _NO_ADAPTER, "model"),
    _rule(r"already in progress", ErrorKind.INTERNAL, _IN_PROGRESS),
    _rule(
        r"beam width \d+ is not \d+",  # this project's own, of its LLM API engine
        ErrorKind.INVALID_REQUEST,
        "This deployment's engine only supports beam search with one fixed width; set use_beam_search, and best_of "
        "to that width.",
        "best_of",
    ),
    _rule(
        r"beam[ _]?width",
        ErrorKind.INVALID_REQUEST,
        "This deployment's engine does not support beam search.",
        "use_beam_search",
    ),
    _rule(
        r"missing .{0,40}input|unexpected inference (?:in|out)put|unexpected shape|unexpected data-?type"
        r"|inference input .{0,80}data-?type is|byte size mismatch|value is required for|\w+ is required$"
        r"|expected \d+ inputs|must be within the vocabulary|must have (?:shape|\d+ values)"
        r"|error occurred when processing the input values|guide string must be provided|guide_type must be one of",
        ErrorKind.INTERNAL,
        _REJECTED,
    ),
    _rule(r"cancell?ed", ErrorKind.CANCELLED, "The engine cancelled the request."),
)

_BY_STATUS = {
    "UNAVAILABLE": (ErrorKind.UNAVAILABLE, "Triton is unreachable."),
    "DEADLINE_EXCEEDED": (ErrorKind.TIMEOUT, "The engine did not respond in time."),
    "CANCELLED": (ErrorKind.CANCELLED, "Triton ended the request."),
    "NOT_FOUND": (ErrorKind.UNAVAILABLE, _NOT_LOADED),
    "INVALID_ARGUMENT": (ErrorKind.INTERNAL, _REJECTED),
    "RESOURCE_EXHAUSTED": (ErrorKind.INTERNAL, "A message between gateway and Triton is too large."),
    "UNAUTHENTICATED": (ErrorKind.INTERNAL, "Triton rejected the gateway's credentials."),
    "PERMISSION_DENIED": (ErrorKind.INTERNAL, "Triton rejected the gateway's credentials."),
}


def engine_error(status: str | None, text: str) -> EngineError:
    """Map a failure to an error for clients.

    Args:
        status: name of the gRPC status, or None for an error inside a stream.
        text: the backend's words.

    Returns:
        An error with a message of the gateway; ``text`` becomes its detail, for the log.
    """
    detail = text if status is None else f"{status}: {text}"
    words = _PREFIX.sub("", text)
    if _CONTEXT.search(words):
        return EngineError(ErrorKind.CONTEXT_LENGTH, _context_message(words), detail)
    for pattern, error, kind, message, param, code in _BY_CLASS:
        if pattern.search(words):
            return error(kind, message, detail, param=param, code=code)
    if found := _NO_USE.search(words):
        what = found[1] if found[1] == "stop_words_list" else parameter_of(found[1]) or found[1]
        message = f"This deployment's engine does not support {what}."
        return EngineError(ErrorKind.INVALID_REQUEST, message, detail, param=parameter_of(found[1]), code=UNSUPPORTED)
    for rule in _BY_TEXT:
        if rule.pattern.search(words):
            # A local deadline or a lost connection says nothing of the engine, whatever words it comes with.
            if rule.kind is ErrorKind.CANCELLED and status in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                continue
            code = UNSUPPORTED if rule.param else None
            return EngineError(rule.kind, rule.message, detail, param=rule.param, code=code)
    kind, message = _BY_STATUS.get(status or "", (ErrorKind.INTERNAL, "The engine failed to process the request."))
    return EngineError(kind, message, detail)


# Why an engine says that it has ended, by TensorRT-LLM's LLM API, by its executor's own names (contract 2.9), and by
# vLLM (10.3).
_WHOLE: dict[str, EngineFinish] = {"stop": "stop", "end_id": "stop", "stop_words": "stop", "length": "length"}
_GIVEN_UP = {
    "timeout": (ErrorKind.TIMEOUT, "The engine aborted the request because it took too long."),
    "timed_out": (ErrorKind.TIMEOUT, "The engine aborted the request because it took too long."),
    "cancelled": (ErrorKind.CANCELLED, "The request was cancelled in the engine."),
    "abort": (ErrorKind.CANCELLED, "The request was cancelled in the engine."),
    "error": (ErrorKind.INTERNAL, "The engine failed before the end of the answer."),
}
_NOT_YET = {"none", "not_finished"}


def read_finish(word: bytes, *, final: bool) -> tuple[EngineFinish | None, EngineError | None]:
    """Map an engine's word for the end of an answer.

    Args:
        word: the engine's word in any case; empty without one.
        final: whether it came with the last response.

    Returns:
        The finish reason, or the failure; neither for an empty word. An unknown word is a failure.
    """
    name = word.decode("utf-8", "replace").strip().lower()
    if name in _WHOLE:
        return _WHOLE[name], None
    if not name or (name in _NOT_YET and not final):
        return None, None
    detail = f"finish reason {name[:100]!r}"
    if name in _GIVEN_UP:
        return None, EngineError(*_GIVEN_UP[name], detail)
    return None, MalformedOutputError(detail, "The engine ended the answer with an unknown finish reason.")


def no_final_response() -> EngineError:
    """Make the error of a stream that ended without a final response (wire contract 9.2, row 1.1)."""
    return EngineError(
        ErrorKind.INTERNAL,
        "The engine's response ended before it was complete.",
        "the stream ended without a final response",
    )


def unsupported(parameter: str, model: str, what: str | None = None) -> EngineError:
    """Make the error of a parameter for which the model declares no tensor.

    Args:
        parameter: its name, as of ``EngineError.param``.
        model: the Triton model's name, for the log.
        what: the subject of the message, as the beginning of a sentence; None for the parameter.
    """
    message = f"{what or parameter} is not supported by this model."
    return EngineError(ErrorKind.INVALID_REQUEST, message, f"model {model}", param=parameter, code=UNSUPPORTED)


def _context_message(words: str) -> str:
    named = next(filter(None, (each.search(words) for each in (_OF_DEFAULT, _OF_STEP, _OF_VLLM, _OF_ENCODER))), None)
    numbers = (named["prompt"], named["most"]) if named else _NUMBER.findall(words)
    if len(numbers) >= 2:
        return context_exceeded(too_many_tokens(numbers[0], numbers[1]) + ".")
    return TOO_LONG
