"""Checks of ``/v1/completions``, where the server has it."""

from __future__ import annotations

import re

from gateway_ops.conformance.api_reference import COMPLETIONS as PAGE
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import WholeReply, served, without_bad_bytes
from gateway_ops.conformance.server_under_check import ServerUnderCheck
from gateway_ops.conformance.verdicts import NotOfferedError, UnclearError, UntrueError, shown

COMPLETIONS = Group("Completions")


def _plain(server: ServerUnderCheck) -> WholeReply:
    answer = server.ask(server.completion())
    if answer.status in {404, 405, 501}:
        raise NotOfferedError(f"the status is {answer.status}: {shown(answer.text)}")
    return WholeReply(served(answer))


@COMPLETIONS.check(
    "completions-form", "A response has `id`, `created`, `model`, the `object` `text_completion` and a text.", PAGE
)
def _form(server: ServerUnderCheck) -> None:
    seen = _plain(server)
    lacking = [name for name in ("id", "created", "model") if not getattr(seen.reply, name)]
    if lacking or seen.reply.object != "text_completion":
        raise UntrueError(f"it lacks {lacking}, its `object` is {shown(seen.reply.object)}", seen.answer)
    if seen.choice().text is None:
        raise UntrueError("its choice has no `text`", seen.answer)


@COMPLETIONS.check(
    "completions-length", "A text that the token limit cut off has the finish reason `length` and as many tokens.", PAGE
)
def _length(server: ServerUnderCheck) -> None:
    long, short = _plain(server), server.whole(server.completion(limit=3))
    if not (long.text.startswith(short.text) and len(long.text) > len(short.text)):
        raise UnclearError("the text with a limit of 3 tokens is not the beginning of the longer text")
    if short.finish != "length" or short.usage.completion_tokens != 3:
        counts = f"`{short.finish}`, {short.usage.completion_tokens} `completion_tokens`"
        raise UntrueError(f"a limit of 3 tokens, which cut the text, gives {counts}", short.answer, long.answer)


@COMPLETIONS.check(
    "completions-stream-same", "A stream, joined, has the text and finish reason of the non-streaming response.", PAGE
)
def _stream_same(server: ServerUnderCheck) -> None:
    _plain(server)
    stream = server.stream(server.completion())
    server.must_equal(
        (_plain(server), lambda seen: (seen.text, [seen.finish])),
        (stream, lambda seen: (seen.text(), seen.finishes())),
        "text and finish reason of the non-streaming response and of the stream are",
    )
    if stream.data[-1] != b"[DONE]":
        raise UntrueError("the stream does not end with `[DONE]`", stream.answer)


@COMPLETIONS.check("completions-prompts", "Each prompt of a list has a choice, at its index; `usage` counts all.", PAGE)
def _prompts(server: ServerUnderCheck) -> None:
    _plain(server)
    prompts = ["1 2 3 4 5 6", "a b c d e f"]
    one, other = (server.whole(server.completion(prompt)) for prompt in prompts)
    both = server.whole(server.completion(prompts), "prompt")
    if sorted(choice.index for choice in both.reply.choices) != [0, 1]:
        raise UntrueError(f"two prompts have {len(both.reply.choices)} choices", both.answer)
    texts, alone = [both.choice(index).any_text for index in (0, 1)], [one.text, other.text]
    if both.usage.prompt_tokens != one.usage.prompt_tokens + other.usage.prompt_tokens:
        counts = f"{both.usage.prompt_tokens}, alone {one.usage.prompt_tokens} and {other.usage.prompt_tokens}"
        raise UntrueError(f"`prompt_tokens` is {counts}", both.answer, one.answer, other.answer)
    if texts == alone:
        return
    if alone[1] in texts[:1] or alone[0] in texts[1:]:
        raise UntrueError(
            f"alone the prompts are continued by {shown(alone)}, in a list by {shown(texts)}",
            both.answer,
            one.answer,
            other.answer,
        )
    raise UnclearError("prompts in a list are continued differently than alone")


@COMPLETIONS.check("completions-echo", "`echo` puts the prompt before the text, and does not change the counts.", PAGE)
def _echo(server: ServerUnderCheck) -> None:
    plain = _plain(server)
    seen = server.whole(server.completion(echo=True), "echo")
    server.must_equal(
        (plain, lambda whole: f"1 2 3 4 5 6{whole.text}"),
        (seen, lambda whole: whole.text),
        "prompt plus text, and the echoed text, are",
    )
    server.must_equal(
        (plain, lambda whole: whole.usage.counts),
        (seen, lambda whole: whole.usage.counts),
        "the counts without and with `echo` are",
    )


def _octets(token: str) -> bytes:
    r"""The bytes of a token, where bytes that are not characters stand as ``bytes:\x88\xd2``."""
    parts = re.findall(r"\\x([0-9a-f]{2})", token) if token.startswith("bytes:") else []
    return bytes.fromhex("".join(parts)) if parts else token.encode()


@COMPLETIONS.check(
    "completions-logprobs",
    "`logprobs` has text, log-prob and offset of each token; the texts, joined, are the answer.",
    PAGE,
)
def _logprobs(server: ServerUnderCheck) -> None:
    _plain(server)
    seen = server.whole(server.completion(logprobs=2), "logprobs")
    found = seen.choice().logprobs
    if found is None or not found.tokens:
        raise UntrueError("the response has no log-probs and no error that explains it", seen.answer)
    joined = without_bad_bytes(b"".join(map(_octets, found.tokens)))
    if joined.rstrip("\ufffd") != without_bad_bytes(seen.text).rstrip("\ufffd"):
        raise UntrueError(f"the tokens are {shown(found.tokens)}, the text is {shown(seen.text)}", seen.answer)
    values = found.token_logprobs or []
    if len(values) != len(found.tokens) or any(value is None or value > 1e-3 for value in values):
        raise UntrueError(f"the log-probs of {len(found.tokens)} tokens are {shown(values)}", seen.answer)
    offsets = found.text_offset or []
    if len(offsets) != len(found.tokens) or offsets != sorted(offsets):
        raise UntrueError(f"the offsets of {len(found.tokens)} tokens are {shown(offsets)}", seen.answer)
