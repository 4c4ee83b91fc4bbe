"""Checks of log-probs in chat."""

from __future__ import annotations

import math

from gateway_ops.conformance.api_reference import CREATE, OBJECT
from gateway_ops.conformance.checks import Group
from gateway_ops.conformance.replies import StreamedReplies, TokenAlternative, TokenEntry, WholeReply, without_bad_bytes
from gateway_ops.conformance.server_under_check import COUNTING, ServerUnderCheck
from gateway_ops.conformance.text_checks import EMOJI
from gateway_ops.conformance.verdicts import UnclearError, UntrueError, shown

LOGPROBS = Group("Log-probs")
_TOP = 3
_ROUNDING = 1e-3  # of sums of float32, and of servers that print few digits
_BETWEEN_RUNS = 0.1  # a batch of another size changes the last bits, and those of float16 are few
_ASKED = ("top_logprobs", "logprobs")


def _plain(server: ServerUnderCheck, prompt: str = COUNTING) -> tuple[WholeReply, list[TokenEntry]]:
    """An answer with log-probs without alternatives, and those."""
    seen = server.whole(server.chat(prompt, logprobs=True), "logprobs")
    return seen, _entries(seen)


def _with_alternatives(server: ServerUnderCheck) -> tuple[WholeReply, list[TokenEntry]]:
    """The same with alternatives."""
    seen = server.whole(server.chat(logprobs=True, top_logprobs=_TOP), *_ASKED)
    return seen, _entries(seen)


def _entries(seen: WholeReply) -> list[TokenEntry]:
    found = seen.choice().logprobs
    if found is None or not found.content:
        raise UnclearError("the response has no log-probs")
    return found.content


@LOGPROBS.check("logprobs-present", "`logprobs` returns the log-probs of the answer's tokens.", CREATE)
def _present(server: ServerUnderCheck) -> None:
    seen = server.whole(server.chat(logprobs=True), "logprobs")
    found = seen.choice().logprobs
    if seen.text and (found is None or not found.content):
        raise UntrueError("the response has no log-probs and no error that explains it", seen.answer)


@LOGPROBS.check("logprobs-each-token", "Each token of an answer has one entry.", OBJECT)
def _each_token(server: ServerUnderCheck) -> None:
    seen, entries = _plain(server)
    if seen.finish != "length":
        raise UnclearError("the answer did not end at its token limit: an end token may be counted or not")
    if len(entries) != seen.usage.completion_tokens:
        evidence = f"{len(entries)} entries, and {seen.usage.completion_tokens} `completion_tokens`"
        raise UntrueError(evidence, seen.answer)


@LOGPROBS.check("logprobs-text", "The tokens joined are the text, where characters are split by their `bytes`.", OBJECT)
def _text(server: ServerUnderCheck) -> None:
    for prompt in (COUNTING, EMOJI):
        seen, entries = _plain(server, prompt)
        message = seen.choice().message
        if message is None or message.text != message.content:
            raise UnclearError("a part of the answer is reasoning")
        joined = b"".join(entry.token.encode() if entry.bytes is None else _octets(entry, seen) for entry in entries)
        tokens, said = without_bad_bytes(joined), without_bad_bytes(message.content)
        # The limit may cut a character, of which the text shows nothing; an end token may follow the text.
        said = said.rstrip("\ufffd")
        if not tokens.startswith(said) or (seen.finish == "length" and tokens[len(said) :].strip("\ufffd")):
            raise UntrueError(f"the tokens are {shown(tokens)}, the text is {shown(said)}", seen.answer)


def _octets(entry: TokenEntry, seen: WholeReply) -> bytes:
    try:
        return bytes(entry.bytes or ())
    except ValueError:
        raise UntrueError(f"`bytes` of a token are {entry.bytes}", seen.answer) from None


@LOGPROBS.check("logprobs-negative", "A log-prob is the logarithm of a probability: 0 at most.", OBJECT)
def _negative(server: ServerUnderCheck) -> None:
    seen, entries = _plain(server)
    for entry in entries:
        if entry.logprob > _ROUNDING:
            raise UntrueError(f"a log-prob is {entry.logprob}", seen.answer)
    if len(entries) > 4 and len({entry.logprob for entry in entries}) == 1:
        raise UntrueError(f"all {len(entries)} tokens have the log-prob {entries[0].logprob}", seen.answer)


@LOGPROBS.check("logprobs-top-count", "`top_logprobs: 3` returns three different alternatives of each token.", CREATE)
def _top_count(server: ServerUnderCheck) -> None:
    seen, entries = _with_alternatives(server)
    for entry in entries:
        # Two tokens may read alike, where each is a part of a character: their bytes tell.
        names = {(each.token, tuple(each.bytes or ()), each.logprob) for each in entry.top_logprobs}
        if len(entry.top_logprobs) != _TOP or len(names) != _TOP:
            tokens = [each.token for each in entry.top_logprobs]
            raise UntrueError(f"the alternatives of {shown(entry.token)} are {shown(tokens)}", seen.answer)


@LOGPROBS.check("logprobs-top-sorted", "Alternatives are the most likely tokens, the likeliest first.", OBJECT)
def _top_sorted(server: ServerUnderCheck) -> None:
    seen, entries = _with_alternatives(server)
    for entry in entries:
        values = [each.logprob for each in entry.top_logprobs]
        if values != sorted(values, reverse=True):
            raise UntrueError(f"the alternatives of {shown(entry.token)} have {values}", seen.answer)
        mass = sum(math.exp(min(value, 1.0)) for value in values)
        if mass > 1 + 10 * _ROUNDING:
            raise UntrueError(
                f"the probabilities of {shown(entry.token)}'s alternatives add up to {mass:.3f}", seen.answer
            )


@LOGPROBS.check(
    "logprobs-greedy-first", "A greedy token is the likeliest of its alternatives, with the same log-prob.", OBJECT
)
def _greedy_first(server: ServerUnderCheck) -> None:
    seen, entries = _with_alternatives(server)
    for entry in entries:
        if not entry.top_logprobs:
            raise UnclearError("the response has no alternatives")
        best = entry.top_logprobs[0].logprob
        own = [each.logprob for each in entry.top_logprobs if _alike(each, entry)]
        if abs(entry.logprob - best) > _ROUNDING or not own or abs(own[0] - entry.logprob) > _ROUNDING:
            evidence = f"{shown(entry.token)} has {entry.logprob}, its likeliest alternative {best}"
            raise UntrueError(evidence, seen.answer)


def _alike(alternative: TokenAlternative, entry: TokenEntry) -> bool:
    return (alternative.token, alternative.bytes) == (entry.token, entry.bytes)


@LOGPROBS.check("logprobs-stream-same", "A stream has the same log-probs as the non-streaming response.", CREATE)
def _stream_same(server: ServerUnderCheck) -> None:
    whole, _ = _plain(server)
    stream = server.stream(server.chat(logprobs=True), "logprobs")
    server.must_equal(
        (whole, lambda seen: [entry.token for entry in _entries(seen)]),
        (stream, lambda seen: [entry.token for entry in _streamed(seen)]),
        "the tokens with log-probs of the non-streaming response and of the stream are",
    )
    for one, other in zip(_entries(whole), _streamed(stream), strict=True):
        if abs(one.logprob - other.logprob) > _BETWEEN_RUNS:
            what = f"{shown(one.token)} has {one.logprob} in the non-streaming response, {other.logprob} in the stream"
            raise UntrueError(what, whole.answer, stream.answer)


def _streamed(stream: StreamedReplies) -> list[TokenEntry]:
    parts = [choice.logprobs.content for choice in stream.choices() if choice.logprobs is not None]
    return [entry for part in parts for entry in part or ()]
