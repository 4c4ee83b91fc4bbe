"""The answer to a chat request: its whole body, or the events of its stream."""

from __future__ import annotations

import functools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from gateway.api.openai.chat.choice import ChunkExtras, ParsedChoice
from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.endpoint import DONE, PendingAnswer, best, error_event, prompt_logprobs_list
from gateway.api.openai.errors import Names, OpenAIError
from gateway.api.openai.generation_fields import StreamOptions
from gateway.api.openai.guidance import ANY_TEXT, Structure
from gateway.api.usage import completion_usage
from gateway.generation import Piece, TokenLogprob, Usage
from gateway.generation.ids import new_id
from gateway.generation.relay.interface import Drain, Forward, Write
from gateway.generation.relay.text_events import PassthroughTemplate, one_line, parsed_events, text_events
from gateway.generation.token_logprobs import named_by_id
from gateway.serving.generation import Generation, Ready
from gateway.serving.generation_group import Generations


@dataclass(frozen=True, slots=True)
class AnswerExpectations:
    """Conditions that a finished answer must fulfil because no guide guarantees them.

    Attributes:
        structure: of its content.
        arguments: by the name of a tool, what its arguments must fit.
        demanded: whether there must be a call.
    """

    structure: Structure = ANY_TEXT
    arguments: Mapping[str, Callable[[str], bool]] = field(default_factory=dict)
    demanded: bool = False

    def __bool__(self) -> bool:
        return self.structure.fits is not None or bool(self.arguments) or self.demanded

    def failure(self, content: str, calls: Sequence[tuple[str, str]]) -> OpenAIError | None:
        """Make the error of a complete answer that does not fulfil the conditions; None when it does.

        Args:
            content: of the answer.
            calls: name and arguments of each call.
        """
        if self.demanded and not calls:
            return _failed(
                "The model made no tool call although the request requires a call, and its engine cannot "
                "enforce tool calls."
            )
        for name, arguments in calls:
            fits = self.arguments.get(name)
            if fits is not None and not fits(arguments):
                return _failed(f"The model called {name!r} with arguments that do not match the schema of the tool.")
        fits = self.structure.fits
        if fits is not None and not calls and not fits(content):
            return _failed(f"The model's answer does not match the format that {self.structure.field!r} requires.")
        return None


def _failed(message: str) -> OpenAIError:
    # The model's doing, so a server's error; but another try costs a whole answer: clients shall not make it unasked.
    return OpenAIError(
        500, message, type="server_error", code="invalid_model_output", headers={"x-should-retry": "false"}
    )


def logprobs_object(entries: Sequence[TokenLogprob], *, names_as_ids: bool = False) -> dict[str, Any]:
    """Make the ``logprobs`` object of a choice; ``bytes`` is a list of integers, as in OpenAI's API.

    Args:
        entries: of its tokens.
        names_as_ids: whether tokens are named by their ids.
    """
    if names_as_ids:
        entries = list(map(named_by_id, entries))
    return {"content": [_entry(entry) for entry in entries], "refusal": None}


def _entry(entry: TokenLogprob) -> dict[str, Any]:
    return {
        "token": entry.token,
        "logprob": entry.logprob,
        "bytes": list(entry.bytes),
        "top_logprobs": [
            {"token": token, "logprob": logprob, "bytes": list(data)} for token, data, logprob in entry.top
        ],
    }


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A conversation that is ready to be continued.

    Attributes:
        generations: one for each candidate; nothing was sent yet.
        parsed: one for each generation where calls or reasoning may be in it, else none.
        calls: whether calls may be made.
        expectations: conditions that are checked at the end.
        changed: paths of texts that the prompt has changed or moved.
    """

    generations: Sequence[Generation]
    parsed: Sequence[ParsedChoice]
    calls: bool
    expectations: AnswerExpectations | None
    changed: Sequence[str]


class ChatAnswer(PendingAnswer):
    """An answer to a chat request.

    Attributes:
        request: the request.
        created: Unix time.
        parsed: one for each generation where calls or reasoning may be in it, else none.
        calls: whether calls may be made.
        expectations: conditions that are checked at the end; None where there are none.
    """

    __slots__ = ("_logprobs", "_texts", "calls", "created", "expectations", "parsed", "request")

    def __init__(self, request: ChatCompletionRequest, prepared: PreparedChat, names: Names) -> None:
        """Take generations that have not begun."""
        super().__init__(prepared.generations, names, padded=request.stream_options is not None and request.obfuscated)
        self.changed = prepared.changed
        self.request = request
        self.parsed = prepared.parsed
        self.calls = prepared.calls
        self.expectations = prepared.expectations or None
        self.created = int(time.time())
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        self._logprobs: defaultdict[int, list[TokenLogprob]] = defaultdict(list)

    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Add pieces to a choice's text and log-probs."""
        for piece in pieces:
            self._texts[index].append(piece.text)
            self._logprobs[index] += piece.logprobs
        if complete and self.parsed:
            self.close(index)
            self.parsed[index].events(complete=True)

    def close(self, index: int) -> None:
        """Tell the parser of a choice that its text has ended."""
        self.parsed[index].reader.close(cut=self.generations[index].assembler.finish_reason == "length")

    def finish_reason(self, index: int) -> str:
        """The finish reason of a choice; valid at its end."""
        reason = self.generations[index].assembler.finish_reason
        return self.parsed[index].finish_reason(reason) if self.parsed else reason

    def finish_reasons(self) -> list[str]:
        """The finish reason of each choice; ``tool_calls`` for one that ended with calls."""
        return [self.finish_reason(index) for index in range(len(self.generations))]

    def usage(self, group: Generations) -> Usage:
        """Count tokens so far, reasoning tokens among them where the model may reason."""
        usage = group.usage()
        return usage.with_reasoning([choice.reasoning_tokens for choice in self.parsed]) if self.parsed else usage

    def failure(self, index: int, text: str) -> OpenAIError | None:
        """Make the error of an ended choice that is not what was requested; None for a choice that was cut.

        Args:
            index: of the choice.
            text: its content where it was not parsed.
        """
        if self.expectations is None or self.generations[index].assembler.finish_reason == "length":
            return None
        if not self.parsed:
            return self.expectations.failure(text, ())
        return self.expectations.failure(self.parsed[index].content or "", self.parsed[index].calls)

    async def body(self, group: Generations) -> bytes:
        """Make the ``chat.completion`` object."""
        request = self.request
        shown = best([_mean(self._logprobs[index]) for index in range(len(self.generations))], request.n)
        texts = ["".join(self._texts[index]) for index in shown]
        for index, text in zip(shown, texts, strict=True):
            failure = self.failure(index, text)
            if failure is not None:
                raise failure
        body = {
            **answer_head("chatcmpl", "chat.completion", request.model, self.created),
            "choices": [self._choice(place, *found) for place, found in enumerate(zip(shown, texts, strict=True))],
            "usage": completion_usage(self.usage(group)),
        }
        if request.tier is not None:
            body["service_tier"] = request.tier
        if request.return_token_ids:
            body["prompt_token_ids"] = list(self.generations[0].request.prompt.ids)
        if request.prompt_logprobs is not None:
            body["prompt_logprobs"] = prompt_logprobs_list(self.generations[0].assembler.prompt_entries())
        return orjson.dumps(body)

    def _choice(self, place: int, index: int, text: str) -> dict[str, Any]:
        request = self.request
        content: str | None = text
        calls: Mapping[str, Any] = {}
        if self.parsed:
            content, calls = self.parsed[index].content, self.parsed[index].message()
        entries = self._logprobs[index]
        choice = {
            "index": place,
            "message": {
                "role": "assistant",
                "content": None if content is None else request.echoed + content,
                "refusal": None,
                **calls,
            },
            "logprobs": logprobs_object(entries, names_as_ids=request.return_tokens_as_token_ids)
            if request.logprobs
            else None,
            "finish_reason": self.finish_reason(index),
            **finish_marks(self.generations[index]),
        }
        if request.return_token_ids:
            choice["token_ids"] = self.generations[index].assembler.token_ids
        return choice


def _mean(entries: Sequence[TokenLogprob]) -> float:
    return sum(entry.logprob for entry in entries) / len(entries) if entries else -math.inf


def answer_head(prefix: str, kind: str, model: str, created: int) -> dict[str, Any]:
    """Make the first fields of an answer or a chunk, with a new id."""
    return {"id": f"{prefix}-{new_id()}", "object": kind, "created": created, "model": model}


def finish_marks(generation: Generation) -> dict[str, Any]:
    """Make fields about the end of a choice: its stop reason, and whether its finish reason is estimated."""
    assembler = generation.assembler
    marks: dict[str, Any] = {"stop_reason": assembler.stop_reason}
    return marks | {"finish_reason_estimated": True} if assembler.finish_estimated else marks


class ChunkWriter:
    """Writes the events that chat and completions have in common.

    Attributes:
        wants_usage: whether every chunk needs the usage so far.
    """

    __slots__ = ("_close", "_head", "_include_usage", "wants_usage")

    def __init__(self, head: Mapping[str, Any], options: StreamOptions | None = None) -> None:
        """Build what all chunks share.

        Args:
            head: fields of each chunk.
            options: of the stream: where a usage chunk will come, the others say ``"usage": null`` or the usage so far.
        """
        self._include_usage = options is not None and options.include_usage
        self.wants_usage = options is not None and options.continuous_usage_stats
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._close = (b'],"usage":null}' if self._include_usage else b"]}") + b"\n\n"

    def end(self, usage: Usage) -> bytes:
        """Make the usage chunk where it is requested, and ``[DONE]``."""
        return (self._head + self._closing(usage) if self._include_usage else b"") + DONE

    def _closing(self, usage: Usage | None) -> bytes:
        """The bytes of a chunk after its choice, with the usage so far where the client requested it."""
        if usage is None:
            return self._close
        return b'],"usage":' + orjson.dumps(completion_usage(usage)) + b"}\n\n"


class ChatChunkWriter(ChunkWriter):
    """Writes the chunks of one chat answer.

    Args:
        head: fields of each chunk.
        options: of the stream.
        choices: how many there are.
        names_as_ids: whether log-prob entries name tokens by their ids.
    """

    __slots__ = ("_after", "_before", "_names_as_ids", "_unfinished")

    def __init__(
        self,
        head: Mapping[str, Any],
        options: StreamOptions | None = None,
        *,
        choices: int = 1,
        names_as_ids: bool = False,
    ) -> None:
        super().__init__(head, options)
        self._names_as_ids = names_as_ids
        self._before = [self._head + b'{"index":%d,"delta":{"content":' % index for index in range(choices)]
        self._unfinished = b',"finish_reason":null}' + self._close
        self._after = b'},"logprobs":null' + self._unfinished

    def role(
        self,
        index: int,
        prompt_ids: Sequence[int] | None = None,
        usage: Usage | None = None,
        *,
        calls: bool = False,
        ids: bool = False,
    ) -> bytes:
        """Make the first chunk of a choice; the first choice's may have the prompt's ids.

        Its content is null if the answer may consist of ``calls`` only, and its token ids are an empty array with
        ``ids``.
        """
        delta = b'{"role":"assistant","content":null}' if calls else b'{"role":"assistant","content":""}'
        own = b',"token_ids":[]' if ids else b""
        choice = b'{"index":%d,"delta":%s,"logprobs":null,"finish_reason":null%s}' % (index, delta, own)
        of_prompt = b"" if prompt_ids is None else b',"prompt_token_ids":' + orjson.dumps(list(prompt_ids))
        return self._head + choice + self._closing(usage).replace(b"]", b"]" + of_prompt, 1)

    def piece(self, index: int, piece: Piece, usage: Usage | None = None) -> bytes:
        """Make a chunk with text and the log-prob entries and ids of that text."""
        start = self._before[index] + orjson.dumps(piece.text)
        more = usage is not None or piece.ids is not None
        if not piece.logprobs and not more:
            return start + self._after
        start += b'},"logprobs":' + orjson.dumps(self._logprobs(piece.logprobs) if piece.logprobs else None)
        if not more:
            return start + self._unfinished
        ids = b"" if piece.ids is None else b',"token_ids":' + orjson.dumps(piece.ids)
        return start + b',"finish_reason":null' + ids + b"}" + self._closing(usage)

    def forward(self, write: Write) -> Forward:
        """Make the function that immediately writes pieces of the only choice.

        Args:
            write: takes events on one line each.
        """
        return text_events(self._before[0], self._after, write, functools.partial(self.piece, 0))

    def around(self, fields: Sequence[str]) -> list[bytes]:
        """Make the bytes of a chunk of the first choice before, between and after a text in the given fields."""
        before = [b",%s:" % orjson.dumps(name) for name in fields]
        return [self._head + b'{"index":0,"delta":{' + before[0][1:], *before[1:], self._after]

    def chunk(
        self,
        index: int,
        delta: Mapping[str, Any],
        extras: ChunkExtras,
        usage: Usage | None = None,
        finish_reason: str | None = None,
        marks: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Make a chunk with ``delta``, log-prob entries and ids.

        Args:
            index: of the choice.
            delta: of the choice; empty in its last chunk.
            extras: entries and ids.
            usage: so far, where it is wanted.
            finish_reason: why the choice has ended; None while it goes on.
            marks: further fields about its end.
        """
        choice: dict[str, Any] = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(extras.logprobs) if extras.logprobs else None,
            "finish_reason": finish_reason,
        }
        if marks is not None:
            choice.update(marks)
        if extras.ids is not None:
            choice["token_ids"] = extras.ids
        return self._head + orjson.dumps(choice) + self._closing(usage)

    def _logprobs(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        return logprobs_object(entries, names_as_ids=self._names_as_ids)


Writer = TypeVar("Writer", bound=ChunkWriter)


class ChoiceEvents(Generic[Writer]):
    """Writes the end of a stream of chat or completions; see ``gateway.api.openai.endpoint.AnswerEvents``."""

    _writer: Writer

    def end(self, usage: Usage) -> bytes:
        """Make the events that end the stream."""
        return self._writer.end(usage)

    def error(self, error: OpenAIError) -> bytes:
        """Make the event of an error, in OpenAI's shape."""
        return error_event(error)


class ChatEvents(ChoiceEvents[ChatChunkWriter]):
    """Writes the events of a chat stream."""

    def __init__(self, answer: ChatAnswer) -> None:
        """Begin before anything was generated."""
        request = answer.request
        self._answer = answer
        head = answer_head("chatcmpl", "chat.completion.chunk", request.model, answer.created)
        if request.service_tier is not None:
            head["service_tier"] = request.tier
        names_as_ids = request.return_tokens_as_token_ids
        self._writer = ChatChunkWriter(head, request.stream_options, choices=request.n, names_as_ids=names_as_ids)
        # The text of each choice, where it must be checked and no parser collects it.
        collected = answer.expectations is not None and not answer.parsed
        self._texts: list[list[str]] | None = [[] for _ in answer.generations] if collected else None

    def opening(self) -> bytes:
        """Make the first chunk of every choice, and a chunk of the echoed text where it is requested."""
        answer, writer, request = self._answer, self._writer, self._answer.request
        usage = answer.generations[0].assembler.usage.at_beginning() if writer.wants_usage else None
        prompt_ids = answer.generations[0].request.prompt.ids if request.return_token_ids else None
        events = b""
        for index in range(request.n):
            ids = request.return_token_ids
            events += writer.role(index, None if index else prompt_ids, usage, calls=answer.calls, ids=ids)
            if request.echo:
                events += writer.piece(index, Piece(request.echoed, ids=[] if ids else None), usage)
        return events

    def take(self, ready: Ready, group: Generations) -> bytes:
        """Make the chunks of the output that became ready.

        Raises:
            OpenAIError: a choice that has ended is not what the request requires.
        """
        writer = self._writer
        usage = self._answer.usage(group) if writer.wants_usage else None
        parts: list[bytes] = []
        for index, pieces, complete in ready:
            extras = None
            if self._answer.parsed:
                parts += self._parse(index, pieces, usage, complete=complete)
                extras = self._answer.parsed[index].extras() if complete else None
            else:
                if self._texts is not None:
                    self._texts[index] += [piece.text for piece in pieces]
                for piece in pieces:
                    parts.append(writer.piece(index, piece, usage))
            if complete:
                if self._answer.expectations is not None:
                    self._check(index)
                reason, marks = self._answer.finish_reason(index), finish_marks(self._answer.generations[index])
                delta = {"content": ""} if self._says_nothing(index) else {}
                extras = extras or ChunkExtras(ids=[] if self._answer.request.return_token_ids else None)
                parts.append(writer.chunk(index, delta, extras, usage, reason, marks))
        return b"".join(parts)

    def forward(self, write: Write) -> Forward | None:
        """Write pieces as chunks; None for several choices, padding, and text that is checked at the end."""
        answer = self._answer
        writer = self._writer
        if self._texts is not None or answer.padded or len(answer.generations) > 1:
            return None
        if writer.wants_usage:
            return None if answer.parsed else functools.partial(self._counted, write)
        if not answer.parsed:
            return writer.forward(write)
        choice = answer.parsed[0]

        def shown() -> PassthroughTemplate | None:
            passing = choice.reader.passing
            return passing and PassthroughTemplate(
                writer.around(choice.fields(passing.kind)), [choice.texts(passing.kind)]
            )

        return parsed_events(choice.reader, shown, self._parsed, write)

    def _counted(self, write: Write, pieces: Sequence[Piece | str]) -> Drain | None:
        """Write the chunks of the only choice, which say the usage so far."""
        writer, usage = self._writer, self._answer.usage(self._answer.generations[0])
        whole = [Piece(piece) if isinstance(piece, str) else piece for piece in pieces]
        return write(one_line(b"".join([writer.piece(0, piece, usage) for piece in whole])))

    def _parsed(self, pieces: Sequence[Piece | str]) -> bytes:
        """The chunks of the only choice, which is parsed; its reader has taken the texts."""
        return b"".join(self._parse(0, [piece for piece in pieces if not isinstance(piece, str)], None, complete=False))

    def _parse(self, index: int, pieces: Sequence[Piece], usage: Usage | None, *, complete: bool) -> list[bytes]:
        """The chunks of a choice that is parsed; log-prob entries and ids ride with the next of them."""
        choice = self._answer.parsed[index]
        for piece in pieces:
            choice.waiting.logprobs += piece.logprobs
            if choice.waiting.ids is not None and piece.ids is not None:
                choice.waiting.ids += piece.ids
        if complete:
            self._answer.close(index)
        return [self._writer.chunk(index, delta, choice.extras(), usage) for delta in choice.take(complete=complete)]

    def _says_nothing(self, index: int) -> bool:
        """Whether a choice whose content began as null has ended without a text and a call."""
        return self._answer.calls and self._answer.parsed[index].content == ""

    def _check(self, index: int) -> None:
        failure = self._answer.failure(index, "" if self._texts is None else "".join(self._texts[index]))
        if failure is not None:
            raise failure
