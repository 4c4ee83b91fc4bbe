"""Checks of token counts."""

from __future__ import annotations

from gateway_ops.conformance.api_reference import CHUNKS, CREATE, OBJECT
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import CompletionDetails, PromptDetails, ReplyUsage, StreamedReplies
from gateway_ops.conformance.server_under_check import LIMIT, ServerUnderCheck
from gateway_ops.conformance.verdicts import UnclearError, UntrueError

USAGE = Group("Usage")
_COUNTED = {"include_usage": True}


def _stream_usage(server: ServerUnderCheck) -> tuple[StreamedReplies, ReplyUsage]:
    """A stream that was asked for its usage, and that."""
    stream = server.stream(server.chat(stream_options=_COUNTED), "stream_options")
    if not stream.usages:
        raise UnclearError("the stream has no usage")
    return stream, stream.usages[-1]


@USAGE.check("usage-present", "A response has `usage`, and counts tokens if its text is not empty.", OBJECT)
def _present(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat())
    if seen.reply.usage is None:
        raise UntrueError("the response has no `usage`", seen.answer)
    if not seen.usage.prompt_tokens or (seen.text and not seen.usage.completion_tokens):
        raise UntrueError(f"a text that is not empty has {seen.usage.counts}", seen.answer)


@USAGE.check("usage-total", "`total_tokens` is the sum of `prompt_tokens` and `completion_tokens`.", OBJECT)
def _total(server: ServerUnderCheck) -> None:
    for seen in (server.whole(server.chat()), server.whole(server.chat(limit=3))):
        usage = seen.usage
        if usage.total_tokens != usage.prompt_tokens + usage.completion_tokens:
            raise UntrueError(f"the counts are {usage.counts}", seen.answer)


@USAGE.check(
    "usage-details",
    "Cached tokens are at most the prompt tokens, and reasoning tokens at most the completion tokens.",
    OBJECT,
)
def _details(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat())
    usage = seen.usage
    cached = (usage.prompt_tokens_details or PromptDetails()).cached_tokens or 0
    thought = (usage.completion_tokens_details or CompletionDetails()).reasoning_tokens or 0
    if not 0 <= cached <= usage.prompt_tokens or not 0 <= thought <= usage.completion_tokens:
        raise UntrueError(f"{cached} cached and {thought} reasoning tokens among {usage.counts}", seen.answer)


@USAGE.check("usage-at-limit", "An answer that the token limit ended has as many tokens as the limit.", CREATE)
def _at_limit(server: ServerUnderCheck) -> None:
    cut = 0
    for limit in (1, 3, LIMIT):
        seen = server.whole(server.chat(limit=limit))
        count = seen.usage.completion_tokens
        if count > limit or (count != limit and seen.finish == "length"):
            raise UntrueError(f"`{server.limit}` {limit}, `{seen.finish}` and {count} `completion_tokens`", seen.answer)
        cut += seen.finish == "length"
    if not cut:
        raise UnclearError("no response says that a limit ended it")


@USAGE.check(
    "usage-of-choices", "`completion_tokens` counts the tokens of all choices, the prompt counts once.", CREATE
)
def _of_choices(server: ServerUnderCheck) -> None:
    one = server.whole(server.chat(limit=4))
    two = server.whole(server.chat(limit=4, n=2), "n")
    if len(two.reply.choices) != 2:
        raise UnclearError(f"2 choices were requested, {len(two.reply.choices)} came")
    if one.finish != "length" or [choice.finish_reason for choice in two.reply.choices] != ["length", "length"]:
        raise UnclearError("not all answers ended at the limit, so their token counts are unknown")
    if two.usage.completion_tokens != 8:
        evidence = f"two choices of 4 tokens have {two.usage.completion_tokens} `completion_tokens`"
        raise UntrueError(evidence, two.answer)
    if one.usage.prompt_tokens != two.usage.prompt_tokens:
        evidence = f"`prompt_tokens` is {one.usage.prompt_tokens}, and {two.usage.prompt_tokens} with `n: 2`"
        raise UntrueError(evidence, one.answer, two.answer)


@USAGE.check("usage-prompt-fixed", "`prompt_tokens` depends on the prompt, and not on the limit of the answer.", OBJECT)
def _prompt_fixed(server: ServerUnderCheck) -> None:
    seen = [server.whole(server.chat(limit=limit)) for limit in (1, LIMIT)]
    counts = [each.usage.prompt_tokens for each in seen]
    if counts[0] != counts[1]:
        evidence = f"`prompt_tokens` is {counts[0]} with a limit of 1 token, {counts[1]} with {LIMIT}"
        raise UntrueError(evidence, *(each.answer for each in seen))


@USAGE.check("usage-prompt-counted", "A longer prompt has more `prompt_tokens`.", OBJECT)
def _prompt_counted(server: ServerUnderCheck) -> None:
    short, long = (server.whole(server.chat(" ".join(map(str, range(1, last)))), "messages") for last in (5, 65))
    if long.usage.prompt_tokens < short.usage.prompt_tokens + 30:
        evidence = f"`prompt_tokens` is {short.usage.prompt_tokens}, with 60 numbers more {long.usage.prompt_tokens}"
        raise UntrueError(evidence, short.answer, long.answer)


@USAGE.check(
    "usage-of-stream",
    "`include_usage` adds a last chunk with the usage of the complete response and without choices.",
    CREATE,
)
def _of_stream(server: ServerUnderCheck) -> None:
    stream = server.stream(server.chat(stream_options=_COUNTED), "stream_options")
    last = stream.chunks[-1]
    if last.usage is None:
        raise UntrueError("the last chunk has no `usage`", stream.answer)
    if last.choices:
        raise UntrueError("the chunk with `usage` has choices", stream.answer)


@USAGE.check("usage-once", "With `include_usage` the `usage` of all other chunks is null.", CREATE)
def _once(server: ServerUnderCheck) -> None:
    stream, _ = _stream_usage(server)
    if len(stream.usages) > 1:
        raise UntrueError(f"{len(stream.usages)} chunks have a `usage`", stream.answer)


@USAGE.check("usage-unasked", "A stream without `include_usage` has no usage.", CREATE)
def _unasked(server: ServerUnderCheck) -> None:
    stream = server.stream(server.chat())
    if stream.usages:
        raise UntrueError("a chunk has a `usage`", stream.answer)


@USAGE.check(
    "usage-stream-same", "A stream and a non-streaming response to the same request have the same counts.", CHUNKS
)
def _stream_same(server: ServerUnderCheck) -> None:
    whole = server.whole(server.chat())
    whole.usage  # noqa: B018 - raises where there is none
    stream, _ = _stream_usage(server)
    server.must_equal(
        (whole, lambda seen: seen.usage.counts),
        (stream, lambda seen: seen.usages[-1].counts if seen.usages else "none"),
        "the counts of the non-streaming response and of the stream are",
    )
