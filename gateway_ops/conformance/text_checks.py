"""Checks of finish reasons, stop strings and texts."""

from __future__ import annotations

from typing import Any

from gateway_ops.conformance.api_reference import CHUNKS, CREATE, OBJECT
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import Message, StreamedReplies, WholeReply
from gateway_ops.conformance.server_under_check import COUNTING, ServerUnderCheck
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

FINISH = Group("Finish reason")
STOP = Group("Stop strings")
TEXT = Group("Text")
EMOJI = "Repeat this: 🙂🚀🙂🚀🙂🚀🙂🚀🙂🚀🙂🚀🙂🚀🙂"
_KNOWN = {"stop", "length", "tool_calls", "content_filter", "function_call"}
_REPLACEMENT = "\ufffd"


@FINISH.check("finish-length", "An answer that the token limit cut off has the finish reason `length`.", OBJECT)
def _length(server: ServerUnderCheck) -> None:
    short, long = server.whole(server.chat(limit=3)), server.whole(server.chat())
    if not (long.text.startswith(short.text) and len(long.text) > len(short.text)):
        raise UnclearError("the text with a limit of 3 tokens is not the beginning of the longer text")
    if short.finish != "length":
        evidence = f"3 tokens, {shown(short.text)}, begin {shown(long.text)}, and end with `{short.finish}`"
        raise UntrueError(evidence, short.answer, long.answer)


@FINISH.check("finish-stop", "An answer that ended before its token limit has the finish reason `stop`.", OBJECT)
def _natural(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat("Say hi.", limit=48))
    if seen.usage.completion_tokens >= 48:
        raise UnclearError("the model gave no answer that ends within 48 tokens")
    if seen.finish != "stop":
        evidence = f"{seen.usage.completion_tokens} of 48 tokens end with `{seen.finish}`"
        raise UntrueError(evidence, seen.answer)


@FINISH.check("finish-known", "A finish reason is a value of the API, and a complete response has one.", OBJECT)
def _known(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat())
    if seen.finish not in _KNOWN:
        raise UntrueError(f"the finish reason is {shown(seen.finish)}", seen.answer)


@FINISH.check("finish-once", "Each choice of a stream has one finish reason, and no text after it.", CHUNKS)
def _once(server: ServerUnderCheck) -> None:
    stream = server.stream(server.chat())
    if len(stream.finishes()) != 1:
        raise UntrueError(f"the finish reasons of the stream are {stream.finishes()}", stream.answer)
    pieces = stream.choices()
    ended = next(place for place, piece in enumerate(pieces) if piece.finish_reason is not None)
    if after := "".join(piece.any_text for piece in pieces[ended + 1 :]):
        raise UntrueError(f"{shown(after)} comes after the finish reason", stream.answer)


@FINISH.check(
    "finish-stream-same",
    "A stream and a non-streaming response to the same request have the same finish reason.",
    CHUNKS,
)
def _finish_same(server: ServerUnderCheck) -> None:
    server.must_equal(
        (server.whole(server.chat()), lambda seen: [seen.finish]),
        (server.stream(server.chat()), StreamedReplies.finishes),
        "the finish reasons of the non-streaming response and of the stream are",
    )


def _spanning(server: ServerUnderCheck) -> tuple[str, str]:
    """The greedy text, and a stop string that begins in one piece of its stream and ends in the next."""
    whole = server.whole(server.chat())
    text = whole.text
    if text != (whole.choice().message or Message()).content:
        raise UnclearError("a part of the answer is reasoning, where stop strings have no effect")
    stream = server.stream(server.chat())
    if stream.text() != text or not server.steady:
        raise UnclearError("the greedy text varies between requests, so a stop string cannot be chosen from it")
    borders: list[int] = []
    for piece in stream.pieces():
        borders.append((borders[-1] if borders else 0) + len(piece))
    middle = len(text) // 2
    for border in sorted(borders[:-1] or [middle], key=lambda place: abs(place - middle)):
        for length in range(2, 9):
            stop = text[border - 1 : border - 1 + length]
            if len(stop) == length and border > 1 and text.find(stop) == border - 1 and stop.strip():
                return text, stop
    raise UnclearError("the greedy text has no part in its middle that could be a stop string")


@STOP.check(
    "stop-cuts", "`stop` ends the text before the stop string; the text does not contain the stop string.", CREATE
)
def _cuts(server: ServerUnderCheck) -> None:
    text, stop = _spanning(server)
    seen = server.whole(server.chat(stop=[stop]), "stop")
    server.must_equal(
        (seen, lambda cut: cut.text),
        (server.whole(server.chat()), lambda whole: whole.text.partition(stop)[0]),
        f"the text with `stop` {shown(stop)}, and what it cuts from {shown(text)}, are",
    )


@STOP.check("stop-in-stream", "A stream does not send any part of a stop string.", CREATE)
def _held_back(server: ServerUnderCheck) -> None:
    text, stop = _spanning(server)
    stream = server.stream(server.chat(stop=[stop]), "stop")
    server.must_equal(
        (stream, StreamedReplies.text),
        (server.whole(server.chat()), lambda whole: whole.text.partition(stop)[0]),
        f"the streamed text with `stop` {shown(stop)}, and what it cuts from {shown(text)}, are",
    )


@STOP.check("stop-finish", "An answer that a stop string ended has the finish reason `stop`.", OBJECT)
def _stop_finish(server: ServerUnderCheck) -> None:
    _, stop = _spanning(server)
    seen = server.whole(server.chat(stop=[stop]), "stop")
    if stop in seen.text:
        raise UnclearError("the stop string did not end the answer")
    if seen.finish != "stop":
        raise UntrueError(f"`stop` {shown(stop)} ended it, its finish reason is `{seen.finish}`", seen.answer)


@STOP.check(
    "stop-list", "Of several stop strings the first in the text ends it; a single stop string may be a string.", CREATE
)
def _several(server: ServerUnderCheck) -> None:
    _, stop = _spanning(server)
    text = server.whole(server.chat()).text
    late = text[text.find(stop) + 1 :][:3]
    if text.find(late) < text.find(stop):
        late = "nor this"
    for given in ([late, "never said", stop], stop):
        seen = server.whole(server.chat(stop=given), "stop")
        server.must_equal(
            (seen, lambda cut: cut.text),
            (server.whole(server.chat()), lambda whole: whole.text.partition(stop)[0]),
            f"the text with `stop` {shown(given)}, and what it cuts, are",
        )


@STOP.check("stop-usage", "An answer that a stop string cut off counts fewer tokens than the complete answer.", OBJECT)
def _stop_usage(server: ServerUnderCheck) -> None:
    _, stop = _spanning(server)
    cut, whole = server.whole(server.chat(stop=[stop]), "stop"), server.whole(server.chat())
    if stop in cut.text:
        raise UnclearError("the stop string did not end the answer")
    if not 0 < cut.usage.completion_tokens < whole.usage.completion_tokens:
        counts = f"{cut.usage.completion_tokens} `completion_tokens`, and {whole.usage.completion_tokens} without"
        raise UntrueError(f"an answer that {shown(stop)} cut has {counts}", cut.answer, whole.answer)


@TEXT.check("text-stream-same", "The text of a stream, joined, is the text of the non-streaming response.", CHUNKS)
def _text_same(server: ServerUnderCheck) -> None:
    for prompt in (COUNTING, EMOJI):
        server.must_equal(
            (server.whole(server.chat(prompt)), lambda seen: seen.text),
            (server.stream(server.chat(prompt)), StreamedReplies.text),
            "the non-streaming text and the streamed text are",
        )


@TEXT.check("text-characters", "No character is split between chunks: a stream has no replacement characters.", CHUNKS)
def _characters(server: ServerUnderCheck) -> None:
    whole, stream = server.whole(server.chat(EMOJI)), server.stream(server.chat(EMOJI))
    if stream.text().count(_REPLACEMENT) > whole.text.count(_REPLACEMENT):
        raise UntrueError(
            f"the text is {shown(whole.text)}, the stream {shown(stream.text())}", whole.answer, stream.answer
        )
    if _REPLACEMENT in whole.text[:-1]:
        raise UnclearError("the text has U+FFFD, which the model itself may have written")
    if whole.text.isascii():
        raise UnclearError("the model answers a prompt of emoji in ASCII")


@TEXT.check("text-parts", "Content of text parts is read like the same text in a string.", CREATE)
def _parts(server: ServerUnderCheck) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": COUNTING}]}]
    server.must_equal(
        (server.whole(server.chat(parts), "messages", "content"), _text_and_prompt),
        (server.whole(server.chat()), _text_and_prompt),
        "text and `prompt_tokens` with a list of parts, and with a string, are",
    )


@TEXT.check("text-all-parts", "Every text part of a message is read.", CREATE)
def _all_parts(server: ServerUnderCheck) -> None:
    one = {"type": "text", "text": COUNTING}
    short, long = (
        server.whole(server.chat([{"role": "user", "content": [one] * count}], 1), "messages", "content")
        for count in (1, 3)
    )
    if long.usage.prompt_tokens <= short.usage.prompt_tokens + 4:
        evidence = f"three parts have {long.usage.prompt_tokens} `prompt_tokens`, one has {short.usage.prompt_tokens}"
        raise UntrueError(evidence, short.answer, long.answer)


def _heard(server: ServerUnderCheck, role: str) -> None:
    """Whether a message of a role before the user's makes the prompt longer."""
    once = [{"role": role, "content": "You are a clerk who counts one two three four five six."}]
    user = [{"role": "user", "content": COUNTING}]
    # The template may have a system message of its own, which another takes the place of: two lengths tell.
    more = [{"role": role, "content": once[0]["content"] * 4}]
    short, long = (server.whole(server.chat([*given, *user], 1), "messages", role) for given in (once, more))
    if long.usage.prompt_tokens < short.usage.prompt_tokens + 12:
        counts = f"{short.usage.prompt_tokens} and {long.usage.prompt_tokens}"
        raise UntrueError(
            f"a {role} message four times as long: `prompt_tokens` are {counts}", short.answer, long.answer
        )


@TEXT.check("text-system", "A system message is read.", CREATE)
def _system(server: ServerUnderCheck) -> None:
    _heard(server, "system")


@TEXT.check("text-developer", "A developer message is read.", CREATE)
def _developer(server: ServerUnderCheck) -> None:
    _heard(server, "developer")


@TEXT.check("text-image", "An image is read, or rejected by name; it is not ignored.", CREATE)
def _image(server: ServerUnderCheck) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}"}}
    text: dict[str, Any] = {"type": "text", "text": COUNTING}
    seen = server.whole(
        server.chat([{"role": "user", "content": [text, image]}], 1), "messages", "image_url", "image", "content"
    )
    without = server.whole(server.chat([{"role": "user", "content": [text]}], 1))
    if seen.usage.prompt_tokens <= without.usage.prompt_tokens:
        what = f"`prompt_tokens` is {seen.usage.prompt_tokens} with an image and {without.usage.prompt_tokens} without"
        raise UntrueError(what, seen.answer, without.answer)


def _text_and_prompt(seen: WholeReply) -> tuple[str, int | None]:
    usage = seen.reply.usage
    return seen.text, usage.prompt_tokens if usage else None
