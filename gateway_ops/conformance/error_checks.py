"""Checks of errors: their status, the parameter at fault, and the error object."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from gateway_ops.conformance.api_reference import AUTHENTICATION, CREATE, ERRORS
from gateway_ops.conformance.api_reference import MODELS as MODELS_PAGE
from gateway_ops.conformance.bounded_http import CheckRequest, HttpAnswer
from gateway_ops.conformance.checks import Body, Group
from gateway_ops.conformance.replies import error_of, is_named, served
from gateway_ops.conformance.server_under_check import CHAT, MODELS, ServerUnderCheck
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

ERROR = Group("Errors")
FAULTS = Group("Invalid requests")
LIST = Group("Models")
_NO_MODEL = "no-such-model"
_TRACE = re.compile(r"Traceback \(most recent call last\)|\bFile \\?\"/|\w\.py:\d|panicked at|(?:\n|\\n)\s+at \S+\(")
_PROBABLE_CONTEXT = 140_000  # words, where the server does not tell: more than most contexts have tokens
_MOST_WORDS = 2_000_000
_JSON: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


def _rejected(server: ServerUnderCheck, request: CheckRequest, status: int, param: str | None = None) -> HttpAnswer:
    """An error response of the API's form with a status and the parameter's name.

    Raises:
        UntrueError: the response is another one, or not an error.
    """
    answer = server.ask(request)
    if answer.late or answer.status in {429, 503}:
        raise UnclearError(answer.trouble or f"the status is {answer.status}")
    if answer.trouble:
        raise UntrueError(answer.trouble, answer)
    if answer.status != status:
        raise UntrueError(f"the status is {answer.status}, not {status}: {shown(answer.text)}", answer)
    error = error_of(answer)
    if error is None:
        raise UntrueError(f"the response has no error object: {shown(answer.text)}", answer)
    if param is not None and not is_named(answer, param):
        raise UntrueError(f"`param` is {shown(error.param)}: {shown(error.message)}", answer)
    return answer


@ERROR.check("error-form", "An error is an object `error` with `message`, `type`, `param` and `code`, as JSON.", ERRORS)
def _form(server: ServerUnderCheck) -> None:
    asked = (server.chat([]), server.chat(temperature=7), server.chat(model=_NO_MODEL))
    rejected = [answer for answer in map(server.ask, asked) if answer.status >= 400]
    for answer in rejected:
        error = error_of(answer)
        lacking = {"message", "type", "param", "code"} - (error.model_fields_set if error else set())
        if error is None or lacking or not error.message or not error.type:
            raise UntrueError(f"the error {answer.status} is {shown(answer.text)}", answer)
        kind = answer.headers.get("content-type", "")
        if kind.partition(";")[0].strip().lower() != "application/json":
            raise UntrueError(f"its content type is {shown(kind)}", answer)
    if not rejected:
        raise UnclearError("no request was rejected")


@ERROR.check("error-no-model", "An unknown model gets status 404 with the code `model_not_found`.", ERRORS)
def _no_model(server: ServerUnderCheck) -> None:
    answer = _rejected(server, server.chat(model=_NO_MODEL), 404)
    error = error_of(answer)
    if error is None or error.code != "model_not_found":
        raise UntrueError(f"the code is {shown(error and error.code)}", answer)


@ERROR.check("error-bad-json", "A body that is not JSON gets status 400.", ERRORS)
def _bad_json(server: ServerUnderCheck) -> None:
    _rejected(server, CheckRequest("POST", CHAT, '{"model": '), 400)


@ERROR.check("error-no-object", "A body that is JSON but not an object gets status 400.", ERRORS)
def _no_object(server: ServerUnderCheck) -> None:
    _rejected(server, CheckRequest("POST", CHAT, "[1, 2]"), 400)


@ERROR.check("error-no-path", "An unknown path gets status 404 with an error object.", ERRORS)
def _no_path(server: ServerUnderCheck) -> None:
    _rejected(server, CheckRequest("GET", "/v1/no-such-path"), 404)


@ERROR.check("error-wrong-key", "A wrong key gets status 401 with an error object.", AUTHENTICATION)
def _wrong_key(server: ServerUnderCheck) -> None:
    if not server.http.has_key:
        raise UnclearError("the check runs without a key")
    request = server.chat(limit=1)
    _rejected(server, CheckRequest(request.method, request.path, request.body, auth="wrong"), 401)


@ERROR.check(
    "error-context",
    "A prompt longer than the context gets status 400 `context_length_exceeded`; it is not shortened silently.",
    ERRORS,
)
def _context(server: ServerUnderCheck) -> None:
    if (server.context or 0) > _MOST_WORDS:
        raise UnclearError(f"the server reports a context of {server.context} tokens, more than this check sends")
    words = server.context + 10 if server.context else _PROBABLE_CONTEXT
    request = server.chat("{numbers}", 1)
    answer = server.ask(CheckRequest(request.method, request.path, request.body, words))
    if answer.late:
        raise UnclearError(answer.trouble)
    if answer.status == 413:
        raise UnclearError("a body of this size is rejected before it is read (413)")
    if answer.status == 200:
        served(answer)
        counted = re.search(r'"prompt_tokens":\s*(\d+)', answer.text)
        if server.context is None and (counted is None or int(counted[1]) >= words):
            raise UnclearError(f"{words} words fit, and the server does not report its context length")
        evidence = f"{words} words were accepted, with {counted[1] if counted else 'no'} `prompt_tokens`"
        raise UntrueError(evidence, answer)
    error = error_of(_rejected(server, answer.request, 400))
    if error is None or error.code != "context_length_exceeded":
        raise UntrueError(f"the code is {shown(error and error.code)}: {shown(answer.text)}", answer)


def _says(role: str | None, content: object = "Hello") -> dict[str, Any]:
    return {"messages": [{"content": content, **({} if role is None else {"role": role})}]}


_COUNTED = {"stream_options": {"include_usage": True}}
_UNKNOWN_TOOL = {
    "tools": [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "no_such_tool"}},
}
# Name of the check, the request in words, its fields, and the parameter at fault.
_FAULTS: tuple[tuple[str, str, Mapping[str, Any], str], ...] = (
    ("no-messages", "without `messages`", {"messages": None}, "messages"),
    ("empty-messages", "with an empty list of `messages`", {"messages": []}, "messages"),
    ("text-messages", "with a text for `messages`", {"messages": "Hello"}, "messages"),
    ("no-role", "with a message without a role", _says(None), "messages"),
    ("strange-role", "with a role that the API does not have", _says("pirate"), "messages"),
    ("strange-part", "with a content part of an unknown type", _says("user", [{"type": "no-such"}]), "messages"),
    ("no-model", "without `model`", {"model": None}, "model"),
    ("stream-text", "with a text for `stream`", {"stream": "perhaps"}, "stream"),
    ("temperature-range", "with `temperature` above 2", {"temperature": 2.5}, "temperature"),
    ("temperature-text", "with a text for `temperature`", {"temperature": "hot"}, "temperature"),
    ("top-p-range", "with `top_p` above 1", {"top_p": 1.5}, "top_p"),
    ("max-tokens-range", "with `max_tokens` below 0", {"max_tokens": -1}, "max_tokens"),
    ("max-tokens-text", "with a text for `max_tokens`", {"max_tokens": "many"}, "max_tokens"),
    ("n-range", "with `n` below 1", {"n": 0}, "n"),
    ("presence-range", "with `presence_penalty` above 2", {"presence_penalty": 3}, "presence_penalty"),
    ("frequency-range", "with `frequency_penalty` below -2", {"frequency_penalty": -3}, "frequency_penalty"),
    ("bias-range", "with `logit_bias` above 100", {"logit_bias": {"1000": 101}}, "logit_bias"),
    ("seed-text", "with a text for `seed`", {"seed": "lucky"}, "seed"),
    ("stop-number", "with a number for `stop`", {"stop": 5}, "stop"),
    ("top-logprobs-range", "with `top_logprobs` above 20", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ("top-logprobs-alone", "with `top_logprobs` without `logprobs`", {"top_logprobs": 2}, "top_logprobs"),
    ("stream-options-alone", "with `stream_options` without `stream`", _COUNTED, "stream_options"),
    ("format-type", "with an unknown `response_format`", {"response_format": {"type": "x"}}, "response_format"),
    ("tool-unknown", "with a `tool_choice` that is not one of the `tools`", _UNKNOWN_TOOL, "tool_choice"),
)


def _fault(fields: Mapping[str, Any], param: str) -> Body:
    def rejected(server: ServerUnderCheck) -> None:
        request = server.chat(limit=1)
        _rejected(server, request.changed(**fields), 400, param)

    return rejected


for _name, _with, _fields, _param in _FAULTS:
    FAULTS.check(f"fault-{_name}", f"A request {_with} gets status 400 with the param `{_param}`.", CREATE)(
        _fault(_fields, _param)
    )


def _object(answer: HttpAnswer) -> dict[str, Any]:
    if answer.status != 200:
        raise UntrueError(f"the status is {answer.status}: {shown(answer.text)}", answer)
    try:
        return _JSON.validate_json(answer.body)
    except ValidationError:
        raise UntrueError(f"the response is not a JSON object: {shown(answer.text)}", answer) from None


def _described(entry: Mapping[str, Any], model: str, answer: HttpAnswer) -> None:
    kinds: Mapping[str, Callable[[Any], bool]] = {
        "id": lambda value: value == model,
        "object": lambda value: value == "model",
        "created": lambda value: isinstance(value, int),
        "owned_by": lambda value: isinstance(value, str),
    }
    wrong = {name: entry.get(name) for name, right in kinds.items() if not right(entry.get(name))}
    if wrong:
        raise UntrueError(f"the model has {shown(wrong)}", answer)


@LIST.check("models-list", "`GET /v1/models` lists the model, with `object`, `created` and `owned_by`.", MODELS_PAGE)
def _list(server: ServerUnderCheck) -> None:
    answer = server.ask(CheckRequest("GET", MODELS))
    data = _object(answer).get("data")
    entries = [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []
    own = [each for each in entries if each.get("id") == server.model]
    if not own:
        raise UntrueError(f"{shown(server.model)} is not listed: {shown(answer.text)}", answer)
    _described(own[0], server.model, answer)


@LIST.check("models-one", "`GET /v1/models/{id}` describes the model.", MODELS_PAGE)
def _one(server: ServerUnderCheck) -> None:
    answer = server.ask(CheckRequest("GET", f"{MODELS}/{server.quoted_model}"))
    _described(_object(answer), server.model, answer)


@LIST.check(
    "models-none", "`GET /v1/models/{id}` of an unknown model gets status 404 with an error object.", MODELS_PAGE
)
def _none(server: ServerUnderCheck) -> None:
    _rejected(server, CheckRequest("GET", f"{MODELS}/{_NO_MODEL}"), 404)


@ERROR.check("error-no-trace", "No error message has source code or tracebacks of the server.", ERRORS)
def _no_trace(server: ServerUnderCheck) -> None:
    for answer in server.answers:
        found = _TRACE.search(answer.text) if answer.status >= 400 else None
        if found:
            raise UntrueError(f"an error {answer.status} has {shown(answer.text[found.start() :])}", answer)
