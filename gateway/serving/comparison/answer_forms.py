"""Reads outcomes of requests: answers of models that generate, vectors, scores, rejections, and failures."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import AliasChoices, AliasPath, BaseModel, BeforeValidator, Field, ValidationError

LONGEST_ANSWER = 16 * 2**20
EMBEDDINGS = "/v1/embeddings"
_VECTORS = {EMBEDDINGS: "embedding", "/pooling": "data"}
_SCORES = ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/v1/classify", "/classify")
ENCODER_PATHS = (*_VECTORS, *_SCORES)
"""The paths whose answers are vectors or scores."""
_OTHER_FORM = "a response of another format"
_WORD = re.compile(r"[\w.\[\]-]{1,64}", re.ASCII)
_UNFINISHED = frozenset({"queued", "in_progress"})
_Form = TypeVar("_Form", bound=BaseModel)
# They tell of the server's state, not of the request.
_PASSING = frozenset({429, 502, 503, 504})
_LONGEST_MESSAGE = 500


class RequestFailedError(Exception):
    """A request without a complete answer; the message is one of a few kinds of failure."""


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """A token with its log-prob, and the log-probs of alternatives by their text."""

    text: str
    log_prob: float
    alternatives: dict[str, float]


@dataclass(slots=True)
class AnswerChoice:
    """One choice of an answer.

    Attributes:
        text: the content.
        reasoning: the reasoning before it.
        refusal: the refusal in place of content.
        calls: name and arguments of each call.
        finish: finish reason in the server's word; None without one.
        tokens: tokens with log-probs; None without them.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    tokens: tuple[AnswerToken, ...] | None = None


@dataclass(frozen=True, slots=True)
class UsageCounts:
    """The usage of an answer; None for counts that are not reported."""

    prompt_tokens: int | None
    completion_tokens: int | None
    estimated: bool


class InputScores(BaseModel):
    """The scores of one document, pair or text: one, or one by class with the label of the best class."""

    index: int
    values: Annotated[list[float], BeforeValidator(lambda value: value if isinstance(value, list) else [value])] = (
        Field(validation_alias=AliasChoices("relevance_score", "score", "probs"), min_length=1)
    )
    label: str | None = None


@dataclass(slots=True)
class WholeAnswer:
    """A complete answer.

    Attributes:
        choices: choices by their index.
        usage: usage; None where the server reports none.
        first_s: seconds to the first event with text of a stream.
        whole_s: seconds to the end.
        vectors: float64 [inputs, dimensions] of embeddings or pooling; None for other answers.
        scores: scores by the index of their input, in the order of the answer; None for other answers.
    """

    choices: tuple[AnswerChoice, ...]
    usage: UsageCounts | None
    first_s: float | None = None
    whole_s: float = 0.0
    vectors: NDArray[np.float64] | None = None
    scores: Mapping[int, InputScores] | None = None


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None
    input: str | None = None

    def text(self) -> str:
        if not isinstance(self.arguments, dict):
            return self.arguments or ""
        try:
            return orjson.dumps(self.arguments).decode()
        except orjson.JSONEncodeError:  # it reads deeper than it writes
            raise RequestFailedError(_OTHER_FORM) from None


class _Call(BaseModel):
    index: int | None = None
    function: _Function | None = None
    custom: _Function | None = None


class _Message(BaseModel):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Scored(BaseModel):
    token: str
    logprob: float
    top_logprobs: list[_Scored] | None = None

    def as_token(self) -> AnswerToken:
        return AnswerToken(self.token, self.logprob, {each.token: each.logprob for each in self.top_logprobs or ()})


class _LogProbs(BaseModel):
    """Those of chat have ``content``, those of completions lists of one length."""

    content: list[_Scored] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None

    def as_tokens(self) -> list[AnswerToken]:
        if self.content is not None:
            return [each.as_token() for each in self.content]
        texts, values = self.tokens or [], self.token_logprobs or []
        beside = self.top_logprobs or [None] * len(texts)
        if not len(texts) == len(values) == len(beside):
            raise RequestFailedError(_OTHER_FORM)
        found = zip(texts, values, beside, strict=True)
        return [AnswerToken(text, value, others or {}) for text, value, others in found if value is not None]


class _Choice(BaseModel):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    text: str | None = None
    logprobs: _LogProbs | None = None
    finish_reason: str | None = None


class _Details(BaseModel):
    estimated: bool = False


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    completion_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_tokens_details: _Details | None = None


def _counts(usage: _Usage | None) -> UsageCounts | None:
    if usage is None:
        return None
    details = usage.completion_tokens_details or usage.output_tokens_details
    prompt = usage.input_tokens if usage.prompt_tokens is None else usage.prompt_tokens
    completion = usage.output_tokens if usage.completion_tokens is None else usage.completion_tokens
    return UsageCounts(prompt, completion, bool(details and details.estimated))


class _UsageHolder(BaseModel):
    usage: _Usage | None = Field(None, validation_alias=AliasChoices("usage", AliasPath("meta", "tokens")))


class _ScoredInputs(_UsageHolder):
    results: list[InputScores] = Field(validation_alias=AliasChoices("results", "data"))


class _Completion(_UsageHolder):
    """An answer of chat or completions, or an event of one."""

    choices: list[_Choice]


class _Part(BaseModel):
    type: str
    text: str = ""
    refusal: str = ""
    logprobs: list[_Scored] | None = None


class _Item(BaseModel):
    type: str
    content: list[_Part] | None = None
    name: str = ""
    arguments: str | None = None
    input: str | None = None


class _Incomplete(BaseModel):
    reason: str | None = None


class _Response(BaseModel):
    status: str
    incomplete_details: _Incomplete | None = None
    output: list[_Item]
    usage: _Usage | None = None


@dataclass(slots=True)
class _Growing:
    """A choice that grows by events."""

    parts: dict[str, list[str]] = field(default_factory=lambda: {"text": [], "reasoning": [], "refusal": []})
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: str | None = None
    tokens: list[AnswerToken] | None = None

    def add(self, choice: _Choice) -> bool:
        """Take an event; return whether it has text."""
        message = choice.delta or choice.message or _Message()
        said = {
            "text": choice.text if choice.text is not None else message.content,
            "reasoning": message.reasoning_content or message.reasoning,
            "refusal": message.refusal,
        }
        for name, text in said.items():
            self.parts[name].append(text or "")
        called = self._add_calls(message)
        self.finish = choice.finish_reason or self.finish
        if choice.logprobs is not None:
            self.tokens = [] if self.tokens is None else self.tokens
            self.tokens += choice.logprobs.as_tokens()
        return called or any(said.values())

    def _add_calls(self, message: _Message) -> bool:
        calls = list(message.tool_calls or ())
        if message.function_call is not None:
            calls.append(_Call(function=message.function_call))
        for place, call in enumerate(calls):
            function = call.function or call.custom or _Function()
            known = self.calls.setdefault(place if call.index is None else call.index, ["", ""])
            known[0] = known[0] or function.name or ""
            known[1] += function.text() or function.input or ""
        return bool(calls)

    def as_choice(self) -> AnswerChoice:
        text, reasoning, refusal = ("".join(parts) for parts in self.parts.values())
        calls = tuple((name, arguments) for _, (name, arguments) in sorted(self.calls.items()))
        return AnswerChoice(
            text, reasoning, refusal, calls, self.finish, None if self.tokens is None else tuple(self.tokens)
        )


class AnswerEventReader:
    """Reads the events of a stream, or the object of an answer that is not streamed.

    Args:
        path: of the endpoint, such as ``/v1/chat/completions``.
    """

    def __init__(self, path: str) -> None:
        self._path, self._of_response = path, path == "/v1/responses"
        self._vectors: NDArray[np.float64] | None = None
        self._scores: dict[int, InputScores] | None = None
        self._choices: dict[int, _Growing] = {}
        self._usage: _Usage | None = None
        self._response: _Response | None = None

    def whole(self, data: bytes) -> None:
        """Read an answer that is not streamed.

        Raises:
            RequestFailedError: the body is not an answer of the endpoint.
        """
        value = _parse(data, "a response that is not JSON")
        if self._of_response:
            self._response = _validated(_Response, value)
        elif self._path in _VECTORS:
            self._vectors = _vectors(value, _VECTORS[self._path])
            self._usage = _validated(_UsageHolder, value).usage
        elif self._path in _SCORES:
            scored = _validated(_ScoredInputs, value)
            self._scores, self._usage = {each.index: each for each in scored.results}, scored.usage
        else:
            self._take(value)

    def event(self, data: bytes) -> bool:
        """Read the data of an event; returns whether it has text.

        Raises:
            RequestFailedError: it is an error, or not one of the endpoint.
        """
        value = _parse(data, "an event that is not JSON")
        if value.get("error"):
            raise RequestFailedError(f"error event {word(value['error'], 'code', 'type')}".strip())
        if not self._of_response:
            return self._take(value)
        kind = value.get("type")
        if kind in {"error", "response.failed"}:
            raise RequestFailedError(f"error event {word(value, 'code')}".strip())
        if kind in {"response.completed", "response.incomplete"}:
            self._response = _validated(_Response, value.get("response"))
        return isinstance(kind, str) and kind.endswith(".delta")

    @property
    def is_whole(self) -> bool:
        """Whether the last event of a response was read; other streams end by ``[DONE]``."""
        return self._response is not None

    def answer(self) -> WholeAnswer:
        """Return the answer that was read.

        Raises:
            RequestFailedError: what was read is not an answer.
        """
        if self._response is not None:
            return _of_response(self._response)
        if self._vectors is not None or self._scores is not None:
            return WholeAnswer((), _counts(self._usage), vectors=self._vectors, scores=self._scores)
        if not self._choices:
            raise RequestFailedError("a response without choices")
        choices = tuple(growing.as_choice() for _, growing in sorted(self._choices.items()))
        return WholeAnswer(choices, _counts(self._usage))

    def _take(self, value: Any) -> bool:
        event = _validated(_Completion, value)
        self._usage = event.usage or self._usage
        said = [self._choices.setdefault(each.index, _Growing()).add(each) for each in event.choices]
        return any(said)


def _of_response(response: _Response) -> WholeAnswer:
    if response.status in _UNFINISHED:
        raise RequestFailedError(f"a response with the status {response.status}")
    if response.status not in {"completed", "incomplete"}:
        raise RequestFailedError("a response that failed")
    parts = [part for item in response.output for part in item.content or ()]
    scored = [part.logprobs for part in parts if part.logprobs]
    calls = (item for item in response.output if item.type in {"function_call", "custom_tool_call"})
    choice = AnswerChoice(
        _joined(part.text for part in parts if part.type == "output_text"),
        _joined(part.text for part in parts if part.type == "reasoning_text"),
        _joined(part.refusal for part in parts),
        tuple((call.name, call.arguments or call.input or "") for call in calls),
        response.status if response.incomplete_details is None else response.incomplete_details.reason,
        tuple(each.as_token() for part in scored for each in part) if scored else None,
    )
    return WholeAnswer((choice,), _counts(response.usage))


def _vectors(value: dict[str, Any], name: str) -> NDArray[np.float64]:
    """The vectors of a list, as numbers or base64, in the order in which they are listed."""
    try:
        places, rows = [each["index"] for each in value["data"]], [each[name] for each in value["data"]]
        rows = [np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else row for row in rows]
        found = np.array(rows, np.float64)
    except (KeyError, TypeError, ValueError):
        raise RequestFailedError(_OTHER_FORM) from None
    if found.ndim != 2 or places != list(range(len(found))):
        raise RequestFailedError("vectors out of order" if found.ndim == 2 else _OTHER_FORM)
    return found


def _joined(texts: Iterable[str]) -> str:
    return "".join(texts)


def _parse(data: bytes, otherwise: str) -> dict[str, Any]:
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise RequestFailedError(otherwise) from None
    if not isinstance(value, dict):
        raise RequestFailedError(_OTHER_FORM)
    return value


def _validated(form: type[_Form], value: Any) -> _Form:
    try:
        return form.model_validate(value)
    except ValidationError:
        raise RequestFailedError(_OTHER_FORM) from None


def word(response: Any, *names: str) -> str:
    """Return the first of some fields that is a short plain word; other texts of a server are not repeated."""
    for name in names:
        value = response.get(name) if isinstance(response, dict) else None
        if isinstance(value, str | int) and _WORD.fullmatch(str(value)):
            return str(value)
    return ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A server's response that rejects a request.

    Attributes:
        status: HTTP status.
        code: code of the error; empty without one.
        param: the parameter at fault, if it is named.
        message: the server's message, which may repeat texts of the request.
    """

    status: int
    code: str
    param: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without a response, for a reason that is not the request's fault."""

    kind: str


Outcome = WholeAnswer | Refusal | Failure


def rejected(status: int, body: bytes) -> Outcome:
    """Make the outcome of a response whose status is not 200."""
    try:
        said = orjson.loads(body)
    except orjson.JSONDecodeError:
        said = None
    error = said.get("error") if isinstance(said, dict) else None
    code = word(error, "code", "type")
    if status in _PASSING:
        return Failure(f"{status} {code}".strip())
    message = error.get("message") if isinstance(error, dict) else body.decode("utf-8", "replace")
    return Refusal(status, code, word(error, "param"), str(message)[:_LONGEST_MESSAGE])


def outcome_of(path: str, status: int, body: bytes, *, streamed: bool) -> Outcome:
    """Make the outcome of a complete response, without its delays.

    Args:
        path: of the endpoint.
        status: of HTTP.
        body: all of it.
        streamed: whether it is made of events.
    """
    if status != HTTPStatus.OK:
        return rejected(status, body)
    reader = AnswerEventReader(path)
    try:
        if streamed:
            _read_events(body, reader)
        else:
            reader.whole(body)
        return reader.answer()
    except RequestFailedError as error:
        return Failure(str(error))


def _read_events(body: bytes, reader: AnswerEventReader) -> None:
    for line in body.split(b"\n"):
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        reader.event(data)
        if reader.is_whole:
            return
    raise RequestFailedError("an incomplete stream")
