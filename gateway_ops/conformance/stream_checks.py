"""Checks of the form of responses and streams."""

from __future__ import annotations

import re

from gateway_ops.conformance.api_reference import CHUNKS, CREATE, EVENTS, OBJECT
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import events, served
from gateway_ops.conformance.server_under_check import ServerUnderCheck
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

FORM = Group("Form of responses")
STREAMS = Group("Streams")


@FORM.check("form-whole", "A response has `id`, `created`, `model`, and the `object` `chat.completion`.", OBJECT)
def _whole(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat())
    lacking = [name for name in ("id", "created", "model") if not getattr(seen.reply, name)]
    if lacking or seen.reply.object != "chat.completion":
        raise UntrueError(f"it lacks {lacking}, its `object` is {shown(seen.reply.object)}", seen.answer)
    message = seen.choice().message
    if message is None or message.role != "assistant":
        raise UntrueError("the role of its message is not `assistant`", seen.answer)


@FORM.check("form-id", "Each response has a different `id`.", OBJECT)
def _own_id(server: ServerUnderCheck) -> None:
    first, second = server.whole(server.chat()), server.whole(server.chat(limit=3))
    if first.reply.id == second.reply.id:
        raise UntrueError(f"two responses have the `id` {shown(first.reply.id)}", first.answer, second.answer)


@FORM.check("form-choices", "`n` sets the number of choices; each choice has a different index.", CREATE)
def _choices(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat(limit=4, n=2), "n")
    indices = sorted(choice.index for choice in seen.reply.choices)
    if indices != [0, 1]:
        raise UntrueError(f"the choices of `n: 2` have the indices {indices}", seen.answer)


@FORM.check("form-unasked", "A response has log-probs and calls only if the request asks for them.", CREATE)
def _unasked(server: ServerUnderCheck) -> None:
    choice = server.whole(server.chat()).choice()
    if choice.logprobs is not None or choice.tool_calls:
        raise UntrueError("the response has log-probs or calls that were not requested", server.ask(server.chat()))


@FORM.check("form-json", "Without `stream`, or with `stream: false`, a response is one JSON object.", CREATE)
def _no_stream(server: ServerUnderCheck) -> None:
    for request in (server.chat(), server.chat(stream=False)):
        answer = served(server.ask(request))
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise UntrueError(f"its content type is {shown(kind)}", answer)


@STREAMS.check("stream-type", "A stream has the content type `text/event-stream`.", CHUNKS)
def _content_type(server: ServerUnderCheck) -> None:
    answer = server.stream(server.chat()).answer
    content_type = answer.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "text/event-stream":
        raise UntrueError(f"its content type is {shown(content_type)}", answer)


@STREAMS.check("stream-events", "A stream is UTF-8 and, except comments, has complete events with `data`.", EVENTS)
def _events(server: ServerUnderCheck) -> None:
    answer = server.stream(server.chat()).answer
    try:
        lines = re.split(r"\r\n|\n|\r", answer.body.decode())
    except UnicodeDecodeError:
        raise UntrueError("the stream is not UTF-8", answer) from None
    fields = ("data:", "event:", "id:", "retry:", ":")
    strange = [line for line in lines if line and not line.startswith(fields)]
    if strange:
        raise UntrueError(f"the stream has the line {shown(strange[0])}", answer)
    if any(lines[-2:]):
        raise UntrueError("its last event does not end with an empty line", answer)


@STREAMS.check("stream-done", "A stream ends with `data: [DONE]`, once.", CHUNKS)
def _done(server: ServerUnderCheck) -> None:
    endless = server.ask(server.chat().changed(stream=True))
    if endless.late and server.ask(server.chat()).status == 200:
        raise UntrueError(f"the streamed response: {endless.trouble}", endless)
    stream = server.stream(server.chat())
    if stream.data.count(b"[DONE]") != 1 or stream.data[-1] != b"[DONE]":
        count = stream.data.count(b"[DONE]")
        raise UntrueError(
            f"{count} events are `[DONE]`, the last is {shown(stream.data[-1].decode(errors='replace'))}", stream.answer
        )


@STREAMS.check("stream-same-head", "All chunks have the same `id`, `created`, `model` and `object`.", CHUNKS)
def _same_head(server: ServerUnderCheck) -> None:
    stream = server.stream(server.chat())
    heads = {(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in stream.chunks}
    if len(heads) != 1:
        raise UntrueError(f"the chunks have {len(heads)} heads: {shown(sorted(map(str, heads)))}", stream.answer)
    name, created, model, kind = heads.pop()
    if not (name and created and model) or kind != "chat.completion.chunk":
        raise UntrueError(
            f"`id`, `created`, `model`, `object` are {shown((name, created, model, kind))}", stream.answer
        )


@STREAMS.check("stream-role", "The first chunk of a choice has the role `assistant`.", CHUNKS)
def _role(server: ServerUnderCheck) -> None:
    stream = server.stream(server.chat())
    roles = [piece.delta.role if piece.delta else None for piece in stream.choices()]
    if roles[0] != "assistant":
        raise UntrueError(f"the role of the first chunk is {shown(roles[0])}", stream.answer)


@STREAMS.check(
    "stream-choices",
    "A stream of several choices marks each chunk with the index of its choice, and ends each choice.",
    CREATE,
)
def _choices_of_stream(server: ServerUnderCheck) -> None:
    stream = server.stream(server.chat(limit=4, n=2), "n")
    found = {index: stream.finishes(index) for index in {c.index for chunk in stream.chunks for c in chunk.choices}}
    if sorted(found) != [0, 1] or any(len(reasons) != 1 for reasons in found.values()):
        raise UntrueError(f"the finish reasons of `n: 2` by index are {found}", stream.answer)


@STREAMS.check("stream-refusal", "An invalid streaming request gets an error status, not a stream.", CREATE)
def _rejected_with_status(server: ServerUnderCheck) -> None:
    answer = server.ask(server.chat(temperature=7).changed(stream=True))
    if answer.status in {400, 422}:
        return
    served(answer, "temperature")
    if any(b'"error"' in data for data in events(answer.body)):
        raise UntrueError("the status is 200, and an event of the stream has the error", answer)
    raise UnclearError("`temperature: 7` is not rejected")
