"""A lie for each check of the suite: what a server would do against its promise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.gateway_ops.conformance.honest_server import CONTEXT, Before, Lie, Reply

_TEXTS = "/v1/completions"
_MODELS = "/v1/models"
Body = dict[str, Any]


def deaf(*names: str, path: str = "/v1/chat/completions") -> Lie:
    """Parameters are dropped."""

    def before(body: Body) -> None:
        for name in names:
            body.pop(name, None)

    return Lie(before, path=path)


def only_streamed(before: Before) -> Lie:
    return Lie(lambda body: before(body) if body.get("stream") else None)


def of_whole(change: Callable[[Body], object], path: str = "/v1/chat/completions") -> Lie:
    """Whole answers are changed."""

    def after(body: Body, reply: Reply) -> None:
        if reply.status == 200 and isinstance(reply.json, dict):
            change(reply.json)

    return Lie(after=after, path=path)


def of_stream(change: Callable[[list[Any]], object], path: str = "/v1/chat/completions") -> Lie:
    """The events of streams are changed."""

    def after(body: Body, reply: Reply) -> None:
        if reply.events:
            change(reply.events)

    return Lie(after=after, path=path)


def of_choices(change: Callable[[Body], object], path: str = "/v1/chat/completions") -> Lie:
    """Each choice, or piece of one, is changed."""

    def after(body: Body, reply: Reply) -> None:
        for choice in reply.choices():
            change(choice)

    return Lie(after=after, path=path)


def of_usage(change: Callable[[Body, Body], object], *, streams: bool = False) -> Lie:
    """The usage of whole answers, or of streams, is changed; the request is at hand."""

    def after(body: Body, reply: Reply) -> None:
        if streams:
            for chunk in reply.chunks():
                if chunk.get("usage"):
                    change(body, chunk["usage"])
        elif reply.status == 200 and isinstance(reply.json, dict):
            change(body, reply.json["usage"])

    return Lie(after=after)


def of_refusals(change: Callable[[Reply], object], path: str = "/v1") -> Lie:
    """Refusals are changed."""
    return Lie(after=lambda _, reply: change(reply) if reply.status >= 400 else None, path=path)


def finish(reason: str) -> Lie:
    def change(choice: Body) -> None:
        if choice["finish_reason"] is not None:
            choice["finish_reason"] = reason

    return of_choices(change)


def entries(change: Callable[[list[Body]], object]) -> Lie:
    """The log-probs of whole answers are changed."""

    def after(choice: Body) -> None:
        if "message" in choice and choice["logprobs"]:
            change(choice["logprobs"]["content"])

    return of_choices(after)


def each_entry(change: Callable[[Body], object]) -> Lie:
    return entries(lambda found: [change(entry) for entry in found])


def dropped(role: str) -> Lie:
    def before(body: Body) -> None:
        if isinstance(body.get("messages"), list):
            body["messages"] = [each for each in body["messages"] if each.get("role") != role]

    return Lie(before)


def parts(change: Callable[[list[Body]], object]) -> Lie:
    """Content that is a list of parts becomes something else."""

    def before(body: Body) -> None:
        for message in body["messages"] if isinstance(body.get("messages"), list) else ():
            if isinstance(message.get("content"), list):
                message["content"] = change(message["content"])

    return Lie(before)


def _first_stop(body: Body) -> None:
    if isinstance(body.get("stop"), list):
        body["stop"] = body["stop"][:1]


def _whole_count(body: Body, usage: Body) -> None:
    if "stop" in body:
        usage["completion_tokens"] = body["max_tokens"]


def _torn(events: list[Any]) -> None:
    for event in events[2:4]:
        if isinstance(event, dict) and event["choices"] and "🙂" in event["choices"][0]["delta"].get("content", ""):
            event["choices"][0]["delta"]["content"] = "\ufffd\ufffd"


def _ends_stop(choice: Body) -> None:
    if "message" not in choice and choice["finish_reason"]:
        choice["finish_reason"] = "stop"


def _every_usage(events: list[Any]) -> None:
    chunks = [event for event in events if isinstance(event, dict)]
    if "usage" in chunks[-1]:
        for chunk in chunks:
            chunk["usage"] = chunks[-1]["usage"]


def _twice(events: list[Any]) -> None:
    ends = [e for e in events if isinstance(e, dict) and e["choices"] and e["choices"][0]["finish_reason"]]
    events.insert(len(events) - 1, ends[0])


def _changing_id(events: list[Any]) -> None:
    for place, event in enumerate(events):
        if isinstance(event, dict):
            event["id"] = f"id-{place}"


def _error_event(body: Body, reply: Reply) -> None:
    if body.get("stream") and reply.status == 400:
        reply.status, reply.events = 200, [reply.json, "[DONE]"]


def _line(body: Body, reply: Reply) -> None:
    if reply.events:
        reply.raw = b"".join(f"{event}\n\n".encode() for event in reply.events)


def _pieces_lost(events: list[Any]) -> None:
    for event in events:
        if isinstance(event, dict) and event["choices"] and event["choices"][0].get("logprobs"):
            event["choices"][0]["logprobs"] = None
            return


def _greedy(body: Body) -> None:
    if body.get("temperature") in {1, 2}:
        body["temperature"] = 0


def _no_call(choice: Body) -> None:
    message = choice.get("message") or {}
    if message.pop("tool_calls", None):
        message["content"] = "Certainly."


def _call_none(body: Body, reply: Reply) -> None:
    if body.get("tool_choice") == "none":
        call = {"id": "c", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        reply.json["choices"][0]["message"]["tool_calls"] = [call]


def _arguments_lost(events: list[Any]) -> None:
    for event in events:
        if isinstance(event, dict) and event["choices"] and "tool_calls" in event["choices"][0].get("delta", {}):
            event["choices"][0]["delta"] = {}
            return


def _shorten(body: Body) -> None:
    for message in body["messages"] if isinstance(body.get("messages"), list) else ():
        if isinstance(message.get("content"), str):
            message["content"] = " ".join(message["content"].split()[: CONTEXT // 2])


def _accepts(body: Body, reply: Reply) -> None:
    if reply.status == 400:
        reply.status, reply.json = 200, {"object": "chat.completion", "choices": []}


def _error(**fields: Any) -> Lie:
    return of_refusals(lambda reply: reply.json["error"].update(fields))


def _status(status: int) -> Lie:
    return of_refusals(lambda reply: setattr(reply, "status", status))


def _detail(reply: Reply) -> None:
    reply.json = {"detail": "Not Found"}


def _somebody_left() -> Lie:
    """Once a long answer was asked for, all others have another text."""
    left = []

    def after(body: Body, reply: Reply) -> None:
        left.append(body.get("max_tokens", 0) > 500)
        for choice in reply.choices():
            if "message" in choice and any(left):
                choice["message"]["content"] = "Somebody left."

    return Lie(after=after)


def _swapped(answer: Body) -> None:
    if len(answer["choices"]) == 2:
        one, other = answer["choices"]
        one["text"], other["text"] = other["text"], one["text"]


FAULT = Lie(after=_accepts)
"""What is at fault is answered."""

LIES: Mapping[str, Callable[[], Lie]] = {
    "usage-present": lambda: of_whole(lambda answer: answer.pop("usage")),
    "usage-total": lambda: of_usage(lambda _, usage: usage.update(total_tokens=usage["prompt_tokens"])),
    "usage-details": lambda: of_usage(lambda _,
                                      usage: usage.update(completion_tokens_details={"reasoning_tokens": 99})),
    "usage-at-limit": lambda: of_usage(lambda _, usage: usage.update(completion_tokens=2)),
    "usage-of-choices": lambda: of_usage(lambda body,
                                         usage: usage.update(completion_tokens=4) if "n" in body else None),
    "usage-prompt-fixed": lambda: of_usage(lambda body, usage: usage.update(prompt_tokens=9 + body["max_tokens"])),
    "usage-prompt-counted": lambda: of_usage(lambda _, usage: usage.update(prompt_tokens=7)),
    "usage-of-stream": lambda: deaf("stream_options"),
    "usage-once": lambda: of_stream(_every_usage),
    "usage-unasked": lambda: only_streamed(lambda body: body.update(stream_options={"include_usage": True})),
    "usage-stream-same": lambda: of_usage(lambda _, usage: usage.update(completion_tokens=99), streams=True),
    "finish-length": lambda: finish("stop"),
    "finish-stop": lambda: finish("length"),
    "finish-known": lambda: finish("eos_token"),
    "finish-once": lambda: of_stream(_twice),
    "finish-stream-same": lambda: of_choices(_ends_stop),
    "stop-cuts": lambda: deaf("stop"),
    "stop-in-stream": lambda: only_streamed(lambda body: body.pop("stop", None)),
    "stop-finish": lambda: finish("length"),
    "stop-list": lambda: Lie(_first_stop),
    "stop-usage": lambda: of_usage(_whole_count),
    "text-stream-same": lambda: of_stream(lambda events: events.pop(3)),
    "text-characters": lambda: of_stream(_torn),
    "text-parts": lambda: parts(str),
    "text-all-parts": lambda: parts(lambda given: given[:1]),
    "text-system": lambda: dropped("system"),
    "text-developer": lambda: dropped("developer"),
    "text-image": lambda: parts(lambda given: [each for each in given if each["type"] == "text"]),
    "form-whole": lambda: of_whole(lambda answer: answer.update(object="text_completion")),
    "form-id": lambda: of_whole(lambda answer: answer.update(id="chatcmpl-1")),
    "form-choices": lambda: deaf("n"),
    "form-unasked": lambda: Lie(lambda body: body.update(logprobs=True)),
    "form-json": lambda: Lie(after=lambda _, reply: reply.headers.update({"Content-Type": "text/plain"})),
    "stream-type": lambda: Lie(after=lambda _, reply: reply.headers.update({"Content-Type": "text/plain"})),
    "stream-events": lambda: Lie(after=_line),
    "stream-done": lambda: of_stream(lambda events: events.pop()),
    "stream-same-head": lambda: of_stream(_changing_id),
    "stream-role": lambda: of_stream(lambda events: events[0]["choices"][0]["delta"].pop("role")),
    "stream-choices": lambda: of_choices(lambda choice: choice.update(index=0)),
    "stream-refusal": lambda: Lie(after=_error_event),
    "logprobs-present": lambda: deaf("logprobs", "top_logprobs"),
    "logprobs-each-token": lambda: entries(lambda found: found.pop()),
    "logprobs-text": lambda: entries(lambda found: found[1].update(token="?", bytes=[63])),
    "logprobs-negative": lambda: each_entry(lambda entry: entry.update(logprob=0.4)),
    "logprobs-top-count": lambda: each_entry(lambda entry: entry["top_logprobs"].pop()),
    "logprobs-top-sorted": lambda: each_entry(lambda entry: entry["top_logprobs"].reverse()),
    "logprobs-greedy-first": lambda: each_entry(lambda entry: entry.update(logprob=entry["logprob"] - 0.5)),
    "logprobs-stream-same": lambda: of_stream(_pieces_lost),
    "max-completion-tokens": lambda: deaf("max_completion_tokens"),
    "max-tokens": lambda: deaf("max_tokens"),
    "temperature": lambda: Lie(_greedy),
    "top-p": lambda: deaf("top_p"),
    "seed": lambda: deaf("seed"),
    "logit-bias": lambda: deaf("logit_bias"),
    "frequency-penalty": lambda: deaf("frequency_penalty"),
    "unknown-field": lambda: deaf("no_such_parameter"),
    "json-object": lambda: deaf("response_format"),
    "json-schema": lambda: deaf("response_format"),
    "tool-named": lambda: of_choices(_no_call),
    "tool-required": lambda: of_choices(_no_call),
    "tool-none": lambda: Lie(after=_call_none),
    "tool-stream-same": lambda: of_stream(_arguments_lost),
    "completions-form": lambda: of_whole(lambda answer: answer.update(object="chat.completion"), _TEXTS),
    "completions-length": lambda: of_choices(lambda choice: choice.update(finish_reason="stop"), _TEXTS),
    "completions-stream-same": lambda: of_stream(lambda events: events.pop(0), _TEXTS),
    "completions-prompts": lambda: of_whole(_swapped, _TEXTS),
    "completions-echo": lambda: deaf("echo", path=_TEXTS),
    "completions-logprobs": lambda: deaf("logprobs", path=_TEXTS),
    "models-list": lambda: Lie(after=lambda _, reply: reply.json.pop("data", None), path=_MODELS),
    "models-one": lambda: Lie(after=lambda _, reply: reply.json.pop("owned_by", None), path=f"{_MODELS}/"),
    "models-none": lambda: of_refusals(_detail, f"{_MODELS}/"),
    "cancel-frees": lambda: Lie(counts_for_ever=True),
    "cancel-harmless": _somebody_left,
    "error-form": lambda: of_refusals(lambda reply: reply.json["error"].pop("type")),
    "error-no-model": lambda: _error(code=404),
    "error-bad-json": lambda: _status(422),
    "error-no-object": lambda: _status(500),
    "error-no-path": lambda: of_refusals(_detail),
    "error-wrong-key": lambda: Lie(takes_every_key=True),
    "error-context": lambda: Lie(_shorten),
    "error-no-trace": lambda: _error(message='Traceback (most recent call last):\n  File "/app/x.py"'),
}  # fmt: skip
