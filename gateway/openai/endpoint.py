"""One request from its body to its response, the same for every endpoint that generates."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from gateway.config import TimeoutSettings
from gateway.generation import EngineError
from gateway.mirroring.copies import Copies, Copy
from gateway.openai.answering import Answer, Events, stream, whole
from gateway.openai.errors import CLIENT_GONE, from_engine
from gateway.openai.models.lookup import find_model
from gateway.openai.parameters.check import Ignored
from gateway.openai.request_body import Body, read_request
from gateway.records import dataclass
from gateway.relay.interface import StreamOutput
from gateway.serving.registry import Registry
from gateway.serving.served_model import ServedModel
from gateway.telemetry.metrics import Metrics
from gateway.web.access_log import RequestRecord, note_session, record_of
from gateway.web.disconnect import ClientDisconnectedError, while_connected
from gateway.web.sse import COMMENT, EventStream

_MOST_NAMES = 32
_LONGEST = 100


class Asked(Protocol):
    """A request as every endpoint has it.

    Attributes:
        model: the name under which the client asks for it, then that of the served model.
    """

    model: str

    @property
    def stream(self) -> bool:
        """Whether the answer is wanted as a stream."""
        ...

    def annotations(self) -> dict[str, Any]:
        """What the request says of itself; for the access log."""
        ...


class Plan(Protocol):
    """The answer that a request wants, as far as it is known before the prompt is."""

    @property
    def names(self) -> Mapping[str, str]:
        """The request's names of parameters that errors of the engine call otherwise."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Paths at which schemas leave OpenAI's strict subset though ``strict`` was asked for."""
        ...


Fields = TypeVar("Fields", bound=Asked)
Planned = TypeVar("Planned", bound=Plan)
Answered = TypeVar("Answered", bound=Answer)


@dataclass(frozen=True, slots=True)
class Endpoint(Generic[Fields, Planned, Answered]):
    """The steps of a request that differ between endpoints. The first three run where the body is parsed.

    Attributes:
        parse: makes the request of a body; raises ``BadRequestError``.
        check: holds the request against the model; returns it without what the policies let pass unserved.
        plan: decides how the answer is made; raises ``BadRequestError``.
        prepare: builds the prompt and prepares the generations.
        events: writes the answer as a stream.
    """

    parse: Callable[[Body], Fields]
    check: Callable[[Fields, ServedModel], tuple[Fields, Ignored]]
    plan: Callable[[Fields, ServedModel], Planned]
    prepare: Callable[[Fields, Planned, ServedModel, RequestRecord], Coroutine[Any, Any, Answered]]
    events: Callable[[Answered], Events]


@dataclass(frozen=True, slots=True)
class Begun(Generic[Fields, Planned]):
    """A request whose body was read and checked.

    Attributes:
        request: as the policies let it pass; its model is the served one, also where an alias was asked for.
        model: the served model.
        plan: of its answer.
        headers: of the response.
        record: of the access log.
        copy: begins a copy of it for the model's mirror; None where it has none.
    """

    request: Fields
    model: ServedModel
    plan: Planned
    headers: Mapping[str, str]
    record: RequestRecord
    copy: Callable[[], Copy | None] | None = None

    def with_copy(self, copies: Copies | None, request: Request, body: Body) -> Begun[Fields, Planned]:
        """The same, to be copied where the model has a mirror."""
        settings = self.model.settings
        if copies is None or settings.mirror is None:
            return self
        begin_copy = functools.partial(copies.begin, settings, request.scope["path"], body, self.record.request_id)
        return replace(self, copy=begin_copy)


async def begin(
    endpoint: Endpoint[Fields, Planned, Answered], request: Request, registry: Registry, metrics: Metrics
) -> Begun[Fields, Planned]:
    """Read, parse and check a request.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the engine is away.
        OpenAIError: 404 for an unknown model; see ``read_request`` for others.
    """
    record = record_of(request.scope)
    note_session(request.scope)

    def take(body: Body) -> Begun[Fields, Planned]:
        begun = checked(endpoint, endpoint.parse(body), record, registry, metrics)
        return begun.with_copy(registry.copies, request, body)

    return await read_request(request, take)


def checked(
    endpoint: Endpoint[Fields, Planned, Answered],
    asked: Fields,
    record: RequestRecord,
    registry: Registry,
    metrics: Metrics,
) -> Begun[Fields, Planned]:
    """Hold a parsed request against its model.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the engine is away.
        OpenAIError: 404 for an unknown model.
    """
    record.annotations = asked.annotations()
    model = find_model(registry, asked.model, record.session or record.annotations.get("prompt_cache_key"))
    record.model = model.name
    asked, ignored = endpoint.check(asked, model)
    asked.model = model.name
    metrics.count_ignored(model.name, ignored.counted)
    plan = endpoint.plan(asked, model)
    headers = name_header("x-ignored-parameters", ignored.named)
    headers |= name_header("x-strict-schema-deviations", plan.warnings)
    return Begun(asked, model, plan, headers, record)


async def prepared(
    endpoint: Endpoint[Fields, Planned, Answered], request: Request, begun: Begun[Fields, Planned]
) -> Answered:
    """Prepare the answer, unless the client leaves meanwhile.

    Raises:
        BadRequestError: when the model cannot give what is asked.
        ClientDisconnectedError: the client left.
        OpenAIError: when the model is not ready, or the prompt is too long.
    """
    preparing = endpoint.prepare(begun.request, begun.plan, begun.model, begun.record)
    try:
        return await while_connected(request.scope, request.receive, preparing)
    except EngineError as error:
        raise from_engine(error, begun.plan.names) from None


async def serve(
    endpoint: Endpoint[Fields, Planned, Answered],
    request: Request,
    registry: Registry,
    metrics: Metrics,
    timeouts: TimeoutSettings,
) -> Response:
    """Answer a request: a stream where one is asked for, else the whole body, given up when the client leaves."""
    begun = await begin(endpoint, request, registry, metrics)
    return await answered(endpoint, request, begun, await prepared(endpoint, request, begun), timeouts)


async def answered(
    endpoint: Endpoint[Fields, Planned, Answered],
    request: Request,
    begun: Begun[Fields, Planned],
    answer: Answered,
    timeouts: TimeoutSettings,
) -> Response:
    """Run a prepared answer, as ``serve`` does."""
    headers = {"Cache-Control": "no-cache", **begun.headers}
    record = begun.record
    copy = begun.copy() if begun.copy is not None else None
    if begun.request.stream:
        output = StreamOutput()
        events = stream(answer, endpoint.events(answer), output, record, timeouts)
        if copy is not None:
            events = copy.streamed(events, output, COMMENT)
        return EventStream(events, headers, output)
    try:
        body = await while_connected(request.scope, request.receive, whole(answer, record))
        if copy is not None:
            asyncio.get_running_loop().call_soon(copy.whole, body)  # once the answer is written
    except ClientDisconnectedError:
        record.disconnected = True
        return Response(status_code=CLIENT_GONE)
    return Response(body, headers=headers, media_type="application/json")


def name_header(header: str, names: Sequence[str]) -> dict[str, str]:
    """A response header that lists names, percent-encoded where they are no plain words; nothing without names.

    At most 32 names are given; ``...`` stands for the others.
    """
    if not names:
        return {}
    shown = [quote(name[:_LONGEST], safe="[]._-$") for name in names[:_MOST_NAMES]]
    return {header: ", ".join(shown + ["..."] * (len(names) > _MOST_NAMES))}
