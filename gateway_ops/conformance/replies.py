"""Responses of OpenAI's API, read with strict types; missing fields are tolerated."""

from __future__ import annotations

import re
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway_ops.conformance.bounded_http import HttpAnswer
from gateway_ops.conformance.verdicts import NotOfferedError, UnclearError, UntrueError, shown

Model = TypeVar("Model", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class PromptDetails(_Part):
    """Counts of parts of the prompt's tokens."""

    cached_tokens: int | None = None


class CompletionDetails(_Part):
    """Counts of parts of the generated tokens."""

    reasoning_tokens: int | None = None


class ReplyUsage(_Part):
    """Token counts."""

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0)
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None

    @property
    def counts(self) -> str:
        """The counts in words, without cached tokens, so that equal requests have equal counts."""
        return f"{self.prompt_tokens} + {self.completion_tokens} = {self.total_tokens} tokens"


class Function(_Part):
    """The name and arguments of a call, or pieces of them in a stream."""

    name: str | None = None
    arguments: str | None = None


class ToolCall(_Part):
    """A call, or a piece of one."""

    index: int = 0
    function: Function = Function()


class Message(_Part):
    """A message, or the delta of one."""

    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def text(self) -> str:
        """All text of the message, with reasoning where it is shown."""
        return f"{self.reasoning_content or self.reasoning or ''}{self.content or ''}"


class TokenAlternative(_Part):
    """A token and its log-prob."""

    token: str
    logprob: float
    bytes: list[int] | None = None


class TokenEntry(TokenAlternative):
    """A token of the text, its log-prob and alternatives."""

    top_logprobs: list[TokenAlternative] = []


class Logprobs(_Part):
    """The log-probs of a choice: `content` in chat, the others in completions."""

    content: list[TokenEntry] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    text_offset: list[int] | None = None


class ReplyChoice(_Part):
    """A choice of an answer or of a chunk, in chat or in completions."""

    index: int = 0
    message: Message | None = None
    delta: Message | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Logprobs | None = None

    @property
    def any_text(self) -> str:
        """The text of the message, the delta or the completion; empty without one."""
        part = self.message or self.delta
        return part.text if part else self.text or ""

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The calls of the message or of the delta; empty without calls."""
        part = self.message or self.delta
        return (part.tool_calls if part else None) or []


class Reply(_Part):
    """A whole response, or a chunk of a stream."""

    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    choices: list[ReplyChoice] = []
    usage: ReplyUsage | None = None


class ErrorObject(_Part):
    """The error object of the API."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class _ErrorBody(_Part):
    error: ErrorObject


class WholeReply:
    """A response that is not streamed."""

    def __init__(self, answer: HttpAnswer) -> None:
        self.answer = answer
        self.reply = read(Reply, answer, answer.body)
        if not self.reply.choices:
            raise UntrueError("the response has no choices", answer)

    @property
    def usage(self) -> ReplyUsage:
        """The usage; without one counts cannot be checked."""
        if self.reply.usage is None:
            raise UnclearError("the response has no usage")
        return self.reply.usage

    def choice(self, index: int = 0) -> ReplyChoice:
        """The choice with this index.

        Raises:
            UntrueError: no choice has it, or several have.
        """
        found = [choice for choice in self.reply.choices if choice.index == index]
        if len(found) != 1:
            raise UntrueError(f"{len(found)} choices have the index {index}", self.answer)
        return found[0]

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.choice().any_text

    @property
    def finish(self) -> str | None:
        """The finish reason of the first choice."""
        return self.choice().finish_reason


class StreamedReplies:
    """The response of a stream.

    Attributes:
        data: data of all events, ``[DONE]`` among them.
        chunks: the chunks in order.
    """

    def __init__(self, answer: HttpAnswer) -> None:
        self.answer = answer
        self.data = events(answer.body)
        self.chunks = [read(Reply, answer, data) for data in self.data if data != b"[DONE]"]
        if not any(chunk.choices for chunk in self.chunks):
            raise UntrueError("the stream has no chunk with choices", answer)

    def choices(self, index: int = 0) -> list[ReplyChoice]:
        """The pieces of a choice."""
        return [choice for chunk in self.chunks for choice in chunk.choices if choice.index == index]

    def pieces(self, index: int = 0) -> list[str]:
        """The texts of a choice's pieces, without empty ones."""
        return [choice.any_text for choice in self.choices(index) if choice.any_text]

    def text(self, index: int = 0) -> str:
        """The text of a choice."""
        return "".join(self.pieces(index))

    def finishes(self, index: int = 0) -> list[str]:
        """All finish reasons of a choice."""
        return [choice.finish_reason for choice in self.choices(index) if choice.finish_reason is not None]

    @property
    def usages(self) -> list[ReplyUsage]:
        """The usage of each chunk that has one."""
        return [chunk.usage for chunk in self.chunks if chunk.usage is not None]


def without_bad_bytes(text: str | bytes) -> str:
    """Decode a text, with one U+FFFD for each run of bytes that are not characters.

    A model may write such bytes, and decoders differ in the number of U+FFFD for them.
    """
    decoded = text if isinstance(text, str) else text.decode(errors="replace")
    return re.sub("\ufffd+", "\ufffd", decoded)


def events(body: bytes) -> list[bytes]:
    """Split the data of Server-Sent Events, without an unfinished event at the end."""
    found = []
    lines: list[bytes] = []
    for line in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[5:].removeprefix(b" "))
        elif not line and lines:
            found.append(b"\n".join(lines))
            lines = []
    return found


def read(model: type[Model], answer: HttpAnswer, data: bytes) -> Model:
    """Parse JSON as a type.

    Raises:
        UntrueError: the data are not JSON, or a field has another type.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = f"`{where}`: {first['msg']}" if where else first["msg"]
        raise UntrueError(
            f"{shown(data.decode(errors='replace'), 80)} does not have the API's form: {said}", answer
        ) from None


def error_of(answer: HttpAnswer) -> ErrorObject | None:
    """The error object of a response; None where it is not an object of OpenAI's form."""
    try:
        return _ErrorBody.model_validate_json(answer.body).error
    except ValidationError:
        return None


def served(answer: HttpAnswer, *names: str) -> HttpAnswer:
    """Return a response if its status is 200.

    Args:
        answer: a response of any status.
        names: names of the parameters that a server may reject.

    Raises:
        NotOfferedError: the server rejects one of ``names`` by its name.
        UntrueError: the server failed.
        UnclearError: the server did not respond in time, or rejected the request for another reason.
    """
    if answer.late:
        raise UnclearError(answer.trouble)
    if answer.trouble:
        raise UntrueError(answer.trouble, answer)
    if answer.status == 200:
        return answer
    said = f"the status is {answer.status}: {shown(answer.text, 160)}"
    if answer.status in {429, 503}:
        raise UnclearError(said)
    if answer.status >= 500 and answer.status != 501:
        raise UntrueError(said, answer)
    if any(is_named(answer, name) for name in names):
        raise NotOfferedError(said)
    raise UnclearError(said)


def is_named(answer: HttpAnswer, name: str) -> bool:
    """Tell whether an error response names a parameter or a part of it."""
    error = error_of(answer)
    if error is not None and error.param is not None:
        own = error.param.replace("[", ".").split(".")[0]
        if own == name.replace("[", ".").split(".")[0]:
            return True
    quoted = r"[\"'`]{}[\"'`]" if len(name) == 1 else r"(?<!\w){}(?!\w)"  # one letter is in any text
    return re.search(quoted.format(re.escape(name)), answer.text) is not None
