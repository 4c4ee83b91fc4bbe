"""Checks that a parameter takes effect or is rejected by name, and is never dropped."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from gateway_ops.conformance.api_reference import CREATE
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import Message, StreamedReplies, ToolCall, WholeReply, served
from gateway_ops.conformance.server_under_check import LIMIT, ServerUnderCheck
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

PARAMETERS = Group("Parameters with an effect")
TOOLS = Group("Forms and calls")
_OPEN = "Write some words at random."
_AGAIN = f"Repeat the word yes forever: {'yes ' * 12}".strip()
_HELLO = "Welcome all guests in the room with a whole sentence."
_STORY = "Tell a short story about the sea, as plain text; JSON is not wanted."
_LONG = 64  # of answers in a form, which end by themselves
_PLACES: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Ulaanbaatar"]}},
    "required": ["city"],
    "additionalProperties": False,
}
_TOOL = {"type": "function", "function": {"name": "look_up", "description": "Look a city up.", "parameters": _PLACES}}


class _Place(BaseModel):
    """A value of the schema."""

    model_config = ConfigDict(strict=True, extra="forbid")
    city: Literal["Ulaanbaatar"]


class _AnyObject(BaseModel):
    model_config = ConfigDict(extra="allow")


def _steady(server: ServerUnderCheck) -> None:
    if not server.steady:
        raise UnclearError("the same greedy request gets different answers")


@PARAMETERS.check("max-completion-tokens", "`max_completion_tokens` limits an answer.", CREATE)
def _max_completion_tokens(server: ServerUnderCheck) -> None:
    _bounds(server, "max_completion_tokens")


@PARAMETERS.check("max-tokens", "`max_tokens` limits an answer.", CREATE)
def _max_tokens(server: ServerUnderCheck) -> None:
    _bounds(server, "max_tokens")


def _bounds(server: ServerUnderCheck, name: str) -> None:
    """Whether a field cuts an answer that would end by itself a little later."""
    short, long = (server.whole(server.chat(_HELLO, None, **{name: limit}), name) for limit in (1, LIMIT))
    if long.reply.usage is not None and long.usage.completion_tokens < 3:
        raise UnclearError(f"the model says {shown(long.text)}, which is too short for this check")
    if (short.text, short.finish) == (long.text, long.finish):
        evidence = f"`{name}` 1 and {LIMIT} both give {shown(short.text)}"
        raise UntrueError(evidence, short.answer, long.answer)


def _sampled(server: ServerUnderCheck, *names: str, **fields: Any) -> list[WholeReply]:
    """Answers to a prompt that is open, with three seeds."""
    seeds = range(11, 14) if "seed" in server.greedy else [None] * 3
    return [server.whole(server.chat(_OPEN, seed=seed, **fields), *names) for seed in seeds]


@PARAMETERS.check(
    "temperature", "`temperature: 2` makes answers differ from each other, or from the greedy answer.", CREATE
)
def _temperature(server: ServerUnderCheck) -> None:
    greedy = server.whole(server.chat(_OPEN))
    seen = _sampled(server, "temperature", temperature=2)
    if {each.text for each in seen} == {greedy.text}:
        evidence = f"three answers with `temperature: 2` are the greedy answer, {shown(greedy.text)}"
        raise UntrueError(evidence, greedy.answer, seen[0].answer)


@PARAMETERS.check("top-p", "`top_p: 0.0001` leaves one token to choose: the answer is the greedy answer.", CREATE)
def _top_p(server: ServerUnderCheck) -> None:
    _steady(server)
    greedy = server.whole(server.chat(_OPEN))
    if {each.text for each in _sampled(server, "temperature", temperature=1)} == {greedy.text}:
        raise UnclearError("answers with `temperature: 1` do not differ from the greedy answer")
    for seen in _sampled(server, "top_p", temperature=1, top_p=0.0001):
        if seen.text != greedy.text:
            evidence = f"with `top_p: 0.0001` the answer is {shown(seen.text)}, the greedy one is {shown(greedy.text)}"
            raise UntrueError(evidence, seen.answer, greedy.answer)


@PARAMETERS.check("seed", "The same `seed` and parameters give the same answer.", CREATE)
def _seed(server: ServerUnderCheck) -> None:
    _steady(server)
    request = server.chat(_OPEN, temperature=1.5, seed=7)
    first = server.whole(request, "seed", "temperature")
    others = [server.whole(server.chat(_OPEN, temperature=1.5, seed=seed), "seed") for seed in (8, 9)]
    if {each.text for each in others} == {first.text}:
        raise UnclearError("other seeds give the same answer")
    again = [WholeReply(served(server.again(request))) for _ in range(2)]
    texts = [each.text for each in (first, *again)]
    if len(set(texts)) == 3:
        raise UntrueError(f"`seed: 7` gives {shown(texts)}", first.answer)
    if len(set(texts)) == 2:
        raise UnclearError("two of three answers with the same seed are equal: `seed` has an effect, but not always")


@PARAMETERS.check("logit-bias", "`logit_bias: 100` makes one token certain.", CREATE)
def _logit_bias(server: ServerUnderCheck) -> None:
    _steady(server)
    seen = server.whole(server.chat(limit=4, logit_bias={"1000": 100}), "logit_bias")
    plain = server.whole(server.chat(limit=4))
    if seen.text == plain.text:
        evidence = f"the answer with and without a bias of 100 for token 1000 is {shown(seen.text)}"
        raise UntrueError(evidence, seen.answer, plain.answer)


@PARAMETERS.check("frequency-penalty", "`frequency_penalty: 2` ends a repetition.", CREATE)
def _frequency_penalty(server: ServerUnderCheck) -> None:
    _steady(server)
    plain = server.whole(server.chat(_AGAIN, 32))
    seen = server.whole(server.chat(_AGAIN, 32, frequency_penalty=2), "frequency_penalty")
    words = plain.text.lower().split()
    if len(words) < 20 or len(set(words)) > 2:
        raise UnclearError("the model does not repeat itself as the prompt asks")
    if seen.text == plain.text:
        evidence = f"the answer with and without `frequency_penalty: 2` is {shown(seen.text)}"
        raise UntrueError(evidence, seen.answer, plain.answer)


@PARAMETERS.check("unknown-field", "An unknown field is rejected, or named in the response.", CREATE)
def _unknown_field(server: ServerUnderCheck) -> None:
    name = "no_such_parameter"
    answer = server.ask(server.chat(limit=1, **{name: 3}))
    if answer.status not in {200, 400}:
        served(answer)
    if name not in answer.text and not any(name in value for value in answer.headers.values()):
        raise UntrueError(f"the status is {answer.status} and the response does not mention `{name}`", answer)


def _only_thought(seen: WholeReply) -> None:
    if seen.finish == "length" and seen.text and not (seen.choice().message or Message()).content:
        raise UnclearError(f"the model was still reasoning after {_LONG} tokens")


def _json(seen: WholeReply, text: str | None, form: type[BaseModel]) -> None:
    """Hold an answer to its form; one that a limit cut has only begun."""
    if not text:
        _only_thought(seen)
    text = text or ""
    try:
        form.model_validate_json(text)
    except ValidationError:
        if seen.finish == "length" and text.lstrip().startswith("{"):
            raise UnclearError(f"the answer had not ended after {_LONG} tokens") from None
        raise UntrueError(f"the answer is {shown(text)}", seen.answer) from None


@TOOLS.check("json-object", "`response_format: json_object` makes the answer a JSON object.", CREATE)
def _json_object(server: ServerUnderCheck) -> None:
    # The first prompt shows an effect, but what it begins may be long; the second makes a short one likely.
    try:
        _json_answer(server, _STORY)
    except UnclearError:
        _json_answer(server, 'Answer with this JSON object and nothing else: {"a": 1}')


def _json_answer(server: ServerUnderCheck, prompt: str) -> None:
    seen = server.whole(server.chat(prompt, _LONG, response_format={"type": "json_object"}), "response_format")
    message = seen.choice().message
    _json(seen, message.content if message else None, _AnyObject)


@TOOLS.check("json-schema", "`response_format: json_schema` makes the answer match the schema.", CREATE)
def _json_schema(server: ServerUnderCheck) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": _PLACES}}
    seen = server.whole(server.chat(_STORY, _LONG, response_format=form), "response_format")
    message = seen.choice().message
    _json(seen, message.content if message else None, _Place)


def _called(seen: WholeReply, why: str) -> ToolCall:
    calls = seen.choice().tool_calls
    if not calls:
        _only_thought(seen)
        raise UntrueError(f"{why}, the answer is {shown(seen.text)}", seen.answer)
    call = calls[0].function
    if call.name != "look_up":
        raise UntrueError(f"{why}, {shown(call.name)} is called", seen.answer)
    _json(seen, call.arguments, _Place)
    return calls[0]


def _call_request(choice: Any) -> dict[str, Any]:
    return {"tools": [_TOOL], "tool_choice": choice}


_NAMED = {"type": "function", "function": {"name": "look_up"}}


@TOOLS.check("tool-named", "`tool_choice` with a function's name makes the model call it.", CREATE)
def _tool_named(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat(_STORY, _LONG, **_call_request(_NAMED)), "tool_choice", "tools")
    _called(seen, "a call of `look_up` was required")


@TOOLS.check("tool-required", "`tool_choice: required` makes the model call a tool.", CREATE)
def _tool_required(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat(_STORY, _LONG, **_call_request("required")), "tool_choice", "tools")
    _called(seen, "a call was required")


@TOOLS.check("tool-none", "With `tool_choice: none` the model calls no tool.", CREATE)
def _tool_none(server: ServerUnderCheck) -> None:
    seen = server.whole(
        server.chat("Look the city of Ulaanbaatar up.", **_call_request("none")), "tool_choice", "tools"
    )
    if seen.choice().tool_calls:
        raise UntrueError("the response has a call", seen.answer)


@TOOLS.check("tool-stream-same", "A streamed call, joined, is the call of the non-streaming response.", CREATE)
def _tool_stream_same(server: ServerUnderCheck) -> None:
    request = server.chat(_STORY, _LONG, **_call_request(_NAMED))
    whole = server.whole(request, "tool_choice", "tools")
    if not whole.choice().tool_calls:
        raise UnclearError("the non-streaming response has no call")
    server.must_equal(
        (whole, lambda seen: [(each.function.name, each.function.arguments) for each in seen.choice().tool_calls]),
        (server.stream(request, "tool_choice", "tools"), _joined),
        "the calls of the non-streaming response and of the stream are",
    )


def _joined(stream: StreamedReplies) -> list[tuple[str, str]]:
    calls: dict[int, tuple[str, str]] = {}
    for piece in (call for choice in stream.choices() for call in choice.tool_calls):
        name, arguments = calls.get(piece.index, ("", ""))
        calls[piece.index] = (name + (piece.function.name or ""), arguments + (piece.function.arguments or ""))
    return list(calls.values())
