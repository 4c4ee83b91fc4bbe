"""The flow of a request that generates, from its body to its response, for every endpoint."""

from __future__ import annotations

import asyncio
import functools
import re
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.errors import CLIENT_GONE, Names, OpenAIError, from_engine
from gateway.api.openai.parameters.check import IgnoredParameters
from gateway.api.openai.request_body import read_request
from gateway.api.openai.request_json import RequestBody
from gateway.generation import EngineError, Piece, PromptTokenLogprob, Usage
from gateway.generation.relay.interface import Forward, StreamOutput, Write, copied
from gateway.generation.relay.text_events import one_line
from gateway.http.access.caller import caller
from gateway.http.access_log import RequestRecord, record_of
from gateway.http.client_connection import ClientDisconnectedError, while_connected
from gateway.http.sse import COMMENT, EventStream
from gateway.serving.generation import Generation, Ready
from gateway.serving.generation_group import Generations, together
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.mirror.copies import RequestCopies, RequestCopy
from gateway.serving.prompts import PromptSource, long_work
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel
from gateway.settings import Task, TimeoutSettings
from gateway.telemetry.metrics import Metrics
from gateway.text.bad_request import BadRequestError, first_of

_IGNORED = "x-ignored-parameters"
DONE = b"data: [DONE]\n\n"


class AnswerEvents(Protocol):
    """Writes the Server-Sent Events of one streamed answer."""

    def opening(self) -> bytes:
        """Make the events before the first text; they are sent together with it."""
        ...

    def take(self, ready: Ready, group: Generations) -> bytes:
        """Make the events of the output that became ready.

        Raises:
            OpenAIError: when a choice that has ended is not what was asked for.
        """
        ...

    def forward(self, write: Write) -> Forward | None:
        """Make the relay's function that writes pieces of text immediately; None where events need more than text.

        Args:
            write: takes events on one line each.
        """
        ...

    def end(self, usage: Usage) -> bytes:
        """Make the events that end the stream."""
        ...

    def error(self, error: OpenAIError) -> bytes:
        """Make the event of an error that ends a begun stream."""
        ...


class PendingAnswer(ABC):
    """An answer before its generations run.

    Attributes:
        generations: those of the first prompt first.
        names: makes the map from the engine's names of parameters in errors to the request's names.
        padded: whether the events of its stream are padded.
        kept: whether its end is stored before the client gets it.
        changed: paths of texts that the prompt has changed or moved.
    """

    __slots__ = ("_noted", "changed", "generations", "kept", "names", "padded")

    def __init__(self, generations: Sequence[Generation], names: Names, *, padded: bool = False) -> None:
        """Take generations that have not begun."""
        self.generations = generations
        self.names = names
        self.padded = padded
        self.kept = False
        self.changed: Sequence[str] = ()
        self._noted: Usage | None = None

    @abstractmethod
    def take(self, index: int, pieces: Sequence[Piece], *, complete: bool) -> None:
        """Collect pieces of a choice for the whole answer."""

    @abstractmethod
    async def body(self, group: Generations) -> bytes:
        """Make the body of the whole answer.

        Raises:
            OpenAIError: a choice is not what the request requires.
        """

    @abstractmethod
    def finish_reasons(self) -> Sequence[str]:
        """The finish reason of each choice; valid at the end."""

    async def keep(self, usage: Usage | None) -> None:  # noqa: B027 - most answers are not kept
        """Store the end of a streamed answer, if it is ``kept``.

        Args:
            usage: of the whole answer; None where its events have reported an error.

        Raises:
            OpenAIError: the end cannot be written. Not raised after an error.
        """

    def leave(self) -> None:  # noqa: B027 - as above
        """Store that the client of a streamed answer has left, if it is ``kept``; without effect after its end."""

    def usage(self, group: Generations) -> Usage:
        """Count tokens so far."""
        return group.usage()

    def note(self, record: RequestRecord, group: Generations, *, ended: bool) -> Usage:
        """Write the outcome into the access log's record, once; returns the token counts."""
        if self._noted is not None:
            return self._noted
        usage = self._noted = self.usage(group)
        record.ttft_s = group.ttft_s
        record.endpoint = group.address or None
        record.prompt_tokens = usage.prompt_tokens
        record.completion_tokens = usage.completion_tokens
        record.finish_reason = ",".join(dict.fromkeys(self.finish_reasons())) if ended else None
        return usage


async def collect_body(answer: PendingAnswer, record: RequestRecord) -> bytes:
    """Run the generations to their end and return the body.

    Raises:
        OpenAIError: a generation fails, or an answer is not what the request requires; no part of it is returned.
    """
    try:
        return await _whole(answer, record)
    except EngineError as error:
        error.__traceback__ = None  # its frames lead to the generation, which keeps the error
        raise from_engine(error, answer.names()) from None


async def _whole(answer: PendingAnswer, record: RequestRecord) -> bytes:
    async with together(answer.generations) as group:
        ended = False
        try:
            while (ready := await group.ready()) is not None:
                for index, pieces, complete in ready:
                    answer.take(index, pieces, complete=complete)
            ended = True
        finally:
            answer.note(record, group, ended=ended)
    return await answer.body(group)


async def stream(
    answer: PendingAnswer, events: AnswerEvents, output: StreamOutput, record: RequestRecord, timeouts: TimeoutSettings
) -> AsyncGenerator[bytes, None]:
    """Yield all ready events together, and comments while the engine returns nothing.

    The first bytes come with the engine's first response, or after ``headers_s`` of waiting for it.

    Raises:
        OpenAIError: when a generation fails before the first bytes. Afterwards its error is the last event.
    """
    finished = obfuscated if answer.padded else bytes
    async with together(answer.generations) as group:
        begun, waiting, more = False, b"", b""
        try:
            timeout = timeouts.headers_s
            while not await group.wait_for_response(timeout):
                begun, timeout = True, timeouts.keepalive_s
                yield COMMENT
            waiting = events.opening()
            begun, quiet_since = begun or bool(waiting), time.monotonic()
            forward: Forward | None = None
            while True:
                # Nothing may overtake the opening, which goes with the first text.
                more += events.take(await group.ready(timeouts.keepalive_s, None if waiting else forward) or [], group)
                if group.done:
                    break
                # What the engine has ended leaves with its end. A call that is held back makes no event of its tokens.
                waiting, more = (b"", waiting + more) if group.complete else (waiting, more)
                if not group.complete and (waiting or more or time.monotonic() - quiet_since >= timeouts.keepalive_s):
                    yield finished(waiting + more) or COMMENT
                    begun, waiting, more, quiet_since = True, b"", b"", time.monotonic()
                    if forward is None and (write := output.write) is not None:
                        forward = events.forward(write if output.copy is None else copied(write, output.copy))
            usage = answer.note(record, group, ended=True)
            last, more = waiting + more, b""
            if answer.kept and last:  # generated text need not wait until the answer can be stored
                yield finished(last)
                last = b""
            await answer.keep(usage)
            last += events.end(usage)
            output.ending = True
            yield finished(last)
        except (EngineError, OpenAIError) as error:
            failure = from_engine(error, answer.names()) if isinstance(error, EngineError) else error
            error.__traceback__ = None  # its frames lead to the generation, which keeps the error
            if not (begun or more):
                try:
                    raise failure from None
                finally:
                    del failure  # breaks the reference cycle between the error and this frame
            record.error = failure.code or failure.type
            answer.note(record, group, ended=False)
            last = (finished(waiting + more) if more else b"") + events.error(failure)
            await answer.keep(None)
            yield last
        finally:
            answer.note(record, group, ended=False)
            if answer.kept:
                answer.leave()


def error_event(error: OpenAIError) -> bytes:
    """Make the event of an error that ends a begun stream; no ``[DONE]`` follows it."""
    return b"data: " + error.body() + b"\n\n"


def best(scores: Sequence[float], n: int) -> list[int]:
    """The indices of the ``n`` candidates with the highest scores, best first.

    The order stays the same where all candidates are chosen.

    Args:
        scores: log-prob per token of each candidate; minus infinity for one without tokens, of which nothing tells how
            likely it is.
        n: candidates to choose.
    """
    order = list(range(len(scores)))
    if n < len(order):
        order.sort(key=scores.__getitem__, reverse=True)
    return order[:n]


def prompt_logprobs_list(entries: Sequence[PromptTokenLogprob]) -> list[dict[str, Any] | None]:
    """Make ``prompt_logprobs`` in vLLM's form: an object by token id for each token, null for the first.

    ``rank`` is null where the engine does not say it and the token is not among the alternatives.
    """
    rows: list[dict[str, Any] | None] = []
    for entry in entries:
        if entry.logprob is None:
            rows.append(None)
            continue
        row = {str(entry.index): {"logprob": entry.logprob, "rank": entry.rank, "decoded_token": entry.token}}
        for rank, (index, token, _, logprob) in enumerate(entry.top, start=1):
            row[str(index)] = {"logprob": logprob, "rank": rank, "decoded_token": token}
        rows.append(row)
    return rows


_MOST_NAMES = 32
_LONGEST_NAME = 100


class ParsedRequest(Protocol):
    """A parsed request of any endpoint.

    Attributes:
        model: the client's name of the model, after ``check_request`` the name of the served model.
    """

    model: str

    @property
    def stream(self) -> bool:
        """Whether the request asks for a stream."""
        ...

    def annotations(self) -> dict[str, Any]:
        """The request's annotations for the access log."""
        ...


class AnswerPlan(Protocol):
    """The decisions about an answer that need no prompt."""

    @property
    def names(self) -> Names:
        """Make the map from the engine's names of parameters in errors to the request's names."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """The paths at which schemas leave OpenAI's strict subset although ``strict`` is requested."""
        ...


Fields = TypeVar("Fields", bound=ParsedRequest)
Planned = TypeVar("Planned", bound=AnswerPlan)
Answered = TypeVar("Answered", bound=PendingAnswer)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Fields, Planned, Answered]):
    """The steps of a request that differ between endpoints.

    The first three run where the body is parsed.

    Attributes:
        parse: makes the request of a JSON object; raises ``BadRequestError``.
        check: validates the request for the model; returns it without what the policies let pass unserved.
        plan: decides how the answer is made; raises ``BadRequestError``.
        prepare: builds the prompt and prepares the generations.
        events: writes the answer as a stream.
    """

    parse: Callable[[dict[str, Any]], Fields]
    check: Callable[[Fields, GeneratorModel], tuple[Fields, IgnoredParameters]]
    plan: Callable[[Fields, GeneratorModel], Planned]
    prepare: Callable[[Fields, Planned, GeneratorModel, RequestRecord], Coroutine[Any, Any, Answered]]
    events: Callable[[Answered], AnswerEvents]


@dataclass(frozen=True, slots=True)
class CheckedRequest(Generic[Fields, Planned]):
    """A request whose body was read and checked against its model.

    Attributes:
        request: the request without ignored parameters, with the name of the served model instead of an alias.
        model: the served model.
        plan: the plan of the answer.
        headers: headers of the response.
        record: the access log's record.
        named: names of ignored parameters for the response headers.
        copy: begins a copy of the request for the model's mirror; None without a mirror.
    """

    request: Fields
    model: GeneratorModel
    plan: Planned
    headers: dict[str, str]
    record: RequestRecord
    named: Sequence[str] = ()
    copy: Callable[[], RequestCopy | None] | None = None

    def with_replaced(self, paths: Sequence[str]) -> CheckedRequest[Fields, Planned]:
        """The request, with paths of texts in which characters were replaced for the response headers."""
        if not paths:
            return self
        named = [*self.named, *paths]
        return replace(self, named=named, headers={**self.headers, **name_header(_IGNORED, named)})

    def with_copy(self, copies: RequestCopies | None, request: Request, body: bytes) -> CheckedRequest[Fields, Planned]:
        """The request, with its copy for the model's mirror, if there is one."""
        settings = self.model.settings
        if copies is None or settings.mirror is None:
            return self
        begin_copy = functools.partial(copies.begin, settings, request.scope["path"], body, self.record.request_id)
        return replace(self, copy=begin_copy)


async def parse_and_check(
    endpoint: Endpoint[Fields, Planned, Answered], request: Request, registry: Registry, metrics: Metrics
) -> CheckedRequest[Fields, Planned]:
    """Read, parse and check a request.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the engine is unreachable.
        OpenAIError: 404 for an unknown model; see ``read_request`` for others.
    """
    record = record_of(request.scope)

    def take(body: RequestBody) -> CheckedRequest[Fields, Planned]:
        begun = check_request(endpoint, endpoint.parse(body.fields), record, registry, metrics)
        return begun.with_replaced(body.replaced).with_copy(registry.copies, request, body.raw)

    return await read_request(request, take)


def check_request(
    endpoint: Endpoint[Fields, Planned, Answered],
    fields: Fields,
    record: RequestRecord,
    registry: Registry,
    metrics: Metrics,
) -> CheckedRequest[Fields, Planned]:
    """Validate a parsed request against its model.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the engine is unreachable.
        OpenAIError: 404 for an unknown model.
    """
    record.annotations = fields.annotations()
    conversation = record.session or record.annotations.get("prompt_cache_key")
    model = find_for_task(registry, fields.model, GeneratorModel, ("generate",), conversation)
    note_model(record, model)
    fields, ignored = endpoint.check(fields, model)
    if fields.model != model.name:
        fields.model = model.name
    if ignored.counted:
        metrics.count_ignored(model.name, ignored.counted)
    plan = endpoint.plan(fields, model)
    headers = name_header(_IGNORED, ignored.named) if ignored.named else {}
    if plan.warnings:
        headers |= name_header("x-strict-schema-deviations", plan.warnings)
    return CheckedRequest(fields, model, plan, headers, record, ignored.named)


async def prepare(
    endpoint: Endpoint[Fields, Planned, Answered], request: Request, checked: CheckedRequest[Fields, Planned]
) -> Answered:
    """Prepare the answer to a checked request; stops when the client leaves.

    Raises:
        BadRequestError: the model does not support what is requested.
        ClientDisconnectedError: the client left.
        OpenAIError: when the model is not ready, or the prompt is too long.
    """
    preparing = endpoint.prepare(checked.request, checked.plan, checked.model, checked.record)
    try:
        answer = await while_connected(request.scope, request.receive, preparing)
    except EngineError as error:
        raise from_engine(error, checked.plan.names()) from None
    if answer.changed:
        checked.headers.update(name_header(_IGNORED, [*checked.named, *answer.changed]))
    return answer


async def serve(
    endpoint: Endpoint[Fields, Planned, Answered],
    request: Request,
    registry: Registry,
    metrics: Metrics,
    timeouts: TimeoutSettings,
) -> Response:
    """Parse, check and prepare a request, and respond with its answer.

    The answer is cancelled when the client leaves.
    """
    begun = await parse_and_check(endpoint, request, registry, metrics)
    return await respond_with(endpoint, request, begun, await prepare(endpoint, request, begun), timeouts)


async def respond_with(
    endpoint: Endpoint[Fields, Planned, Answered],
    request: Request,
    checked: CheckedRequest[Fields, Planned],
    answer: Answered,
    timeouts: TimeoutSettings,
) -> Response:
    """Generate a prepared answer and respond with its stream or, where no stream is requested, with its body."""
    headers = {"Cache-Control": "no-cache", **checked.headers}
    record = checked.record
    copy = checked.copy() if checked.copy is not None else None
    if checked.request.stream:
        output = StreamOutput()
        events = stream(answer, endpoint.events(answer), output, record, timeouts)
        if copy is not None:
            events = copy.streamed(events, output, COMMENT)
        return EventStream(events, headers, output)
    try:
        body = await while_connected(request.scope, request.receive, collect_body(answer, record))
        if copy is not None:
            asyncio.get_running_loop().call_soon(copy.whole, body)  # once the answer is written
    except ClientDisconnectedError:
        record.disconnected = True
        return Response(status_code=CLIENT_GONE)
    return Response(body, headers=headers, media_type="application/json")


async def respond(
    request: Request,
    source: PromptSource,
    write: Callable[[threading.Event | None], bytes],
    headers: Mapping[str, str],
) -> Response:
    """Respond with what is made of a prompt without its engine.

    Args:
        request: of the client.
        source: of the prompt, which decides where the work runs.
        write: makes the body; its argument is set when the client has left, and None on the event loop.
        headers: of the response.
    """
    work = long_work(source)
    body = write(None) if work is None else await while_connected(request.scope, request.receive, work.run(write))
    return Response(body, headers=dict(headers), media_type="application/json")


def name_header(header: str, names: Sequence[str]) -> dict[str, str]:
    """Make a response header that lists names, percent-encoded where needed.

    At most 32 names are given; ``...`` stands for the others. The result is empty without names.
    """
    if not names:
        return {}
    first, more = first_of(names, _MOST_NAMES)
    shown = [quote(name[:_LONGEST_NAME], safe="[]._-$") for name in first]
    return {header: ", ".join(shown + ["..."] * bool(more))}


def note_model(record: RequestRecord, model: ServedModel) -> None:
    """Note the model of a request for the access log."""
    record.model, record.task = model.name, model.task


def find_model(registry: Registry, name: str, conversation: str | None = None) -> ServedModel:
    """Find a served model that the caller may use.

    Args:
        registry: of served models.
        name: an id, an alias or a split.
        conversation: as of ``Registry.get``.

    Raises:
        OpenAIError: 404 ``model_not_found``.
    """
    model = registry.get(name, conversation)
    if model is None or (caller().models is not None and not _may_use(registry, name, model)):
        what = f"The model {name[:256]!r} does not exist. GET /v1/models lists the available models."
        raise OpenAIError(404, what, param="model", code="model_not_found")
    return model


Kind = TypeVar("Kind", bound=ServedModel)


def find_for_task(
    registry: Registry, name: str, kind: type[Kind], tasks: Sequence[Task], conversation: str | None = None
) -> Kind:
    """Find a served model that the caller may use and that has a task of the endpoint.

    Args:
        registry: as of ``find_model``.
        name: as of ``find_model``.
        kind: the class of models with these tasks.
        tasks: the tasks, of which the model must have one.
        conversation: as of ``find_model``.

    Raises:
        OpenAIError: as ``find_model``.
        BadRequestError: ``unsupported_task``.
    """
    model = find_model(registry, name, conversation)
    if isinstance(model, kind) and model.task in tasks:
        return model
    able = ", ".join(repr(other) for other, each in models_of_caller(registry) if each.task in tasks)
    what = f"The task of the model {name!r} is {model.task}, but this endpoint is for the task {' or '.join(tasks)}."
    what += f" Models for it: {able}." if able else " No such model is served."
    raise BadRequestError(what, param="model", code="unsupported_task")


def models_of_caller(registry: Registry) -> list[tuple[str, ServedModel]]:
    """List each id under which the caller reaches a model, with the model; models that generate come first."""
    found = [(name, model) for name, model in registry.names() if _may_use(registry, name, model)]
    return sorted(found, key=lambda each: each[1].task != "generate")


def _may_use(registry: Registry, name: str, model: ServedModel) -> bool:
    """Whether the caller may use a model under a name; a split by its own name only."""
    who = caller()
    return who.models is None or who.may_use((name,) if registry.split(name) else (model.name, name))


STEP = 64
"""Bytes; more than most tokens have, so that their chunks are all of one length."""

_END_OF_EVENT = b"}\n\n"
_NAMED_DELTA = re.compile(rb"event: [\w.]+\.delta\n")  # other events of a response never have the text of one token
_PADDING = b',"obfuscation":"'
_LEAST_PADDING = len(_PADDING) + 1  # includes the closing quote


def obfuscated(events: bytes) -> bytes:
    """Pad every chunk or delta of a stream, but no other event (``stream_options.include_obfuscation``).

    An observer of encrypted traffic sees the length of each event, which reveals the length of its token. The field
    ``obfuscation`` fills every chunk up to a multiple of ``STEP`` bytes. The padding is random and so cannot be
    compressed.

    Args:
        events: complete events, ready to send.
    """
    return b"".join(_padded(event + b"\n\n") for event in one_line(events).split(b"\n\n")[:-1])


def _padded(event: bytes) -> bytes:
    if not event.startswith(b"data: {") and not _NAMED_DELTA.match(event):
        return event
    wanted = -(len(event) + _LEAST_PADDING) % STEP
    padding = secrets.token_urlsafe(STEP)[:wanted].encode()
    return event[: -len(_END_OF_EVENT)] + _PADDING + padding + b'"' + _END_OF_EVENT
