"""One request to an endpoint whose model encodes, from its body to its response."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.endpoint import find_for_task, name_header, note_model
from gateway.api.openai.errors import CLIENT_GONE, from_engine
from gateway.api.openai.parameters.check import ParameterPolicies
from gateway.api.openai.request_body import read_request
from gateway.api.openai.request_json import RequestBody
from gateway.api.openai.validation import RequestPart, validated
from gateway.generation import Capability, EngineError, too_many_tokens
from gateway.generation.encoder import EncoderParams
from gateway.http.access_log import RequestRecord, record_of
from gateway.http.client_connection import ClientDisconnectedError, while_connected
from gateway.serving.encoder_model import Encoded, EncoderModel
from gateway.serving.registry import Registry
from gateway.settings import Task
from gateway.telemetry.metrics import Metrics
from gateway.text.bad_request import BadRequestError, printable
from gateway.text.tokens.encoder_tokenizer import EncoderInput, InputTooLongError, Truncation

_SIDES: dict[str, Truncation] = {"NONE": "none", "START": "start", "LEFT": "start", "END": "end", "RIGHT": "end"}


class EncoderFields(RequestPart):
    """The fields that all endpoints of encoders have; null means absent."""

    model: Annotated[str, Field(min_length=1)]
    user: str | None = None
    input_type: Annotated[str | None, Field(min_length=1, max_length=256)] = None
    truncate: Annotated[str | None, Field(pattern="^(?i:none|start|left|end|right)$")] = None

    @abstractmethod
    def inputs(self) -> Sequence[EncoderInput]:
        """What is to be encoded, at least one."""

    @abstractmethod
    def path(self, index: int) -> str:
        """Where the request has an input, such as ``input[3]``."""

    def check_model(self, model: EncoderModel) -> None:
        """Check what the endpoint alone asks of a model.

        Raises:
            BadRequestError: naming the parameter at fault.
        """

    def params(self) -> EncoderParams:
        """What is asked of all inputs."""
        return EncoderParams(self.input_type, _SIDES[(self.truncate or "none").upper()])


Fields = TypeVar("Fields", bound=EncoderFields)


@dataclass(frozen=True, slots=True)
class EncoderEndpoint(Generic[Fields]):
    """What differs between endpoints of encoders.

    Attributes:
        fields: of a request.
        tasks: of models that are asked here.
        body: writes the response.
    """

    fields: type[Fields]
    tasks: tuple[Task, ...]
    body: Callable[[Fields, EncoderModel, Encoded], bytes]


async def serve_encoder(
    endpoint: EncoderEndpoint[Fields], request: Request, registry: Registry, metrics: Metrics
) -> Response:
    """Read a request, have its inputs encoded, and respond.

    Raises:
        BadRequestError: naming the parameter at fault.
        OpenAIError: 404 for an unknown model; see ``read_request`` for others.
    """
    record, arrived = record_of(request.scope), time.perf_counter()

    def take(body: RequestBody) -> tuple[Fields, EncoderModel, dict[str, str]]:
        given = {name: value for name, value in body.fields.items() if value is not None}
        asked = validated(endpoint.fields, given)
        model = find_for_task(registry, asked.model, EncoderModel, endpoint.tasks)
        note_model(record, model)
        ignored = _check(asked, model)
        if ignored:
            metrics.count_ignored(model.name, ignored)
        shown = ignored if model.settings.policies.unknown == "warn" else []
        return asked, model, name_header("x-ignored-parameters", [*shown, *body.replaced])

    asked, model, headers = await read_request(request, take)
    try:
        body = await while_connected(request.scope, request.receive, _encoded(endpoint, asked, model, record, arrived))
    except ClientDisconnectedError:
        record.disconnected = True
        return Response(status_code=CLIENT_GONE)
    return Response(body, headers=headers, media_type="application/json")


async def _encoded(
    endpoint: EncoderEndpoint[Fields], asked: Fields, model: EncoderModel, record: RequestRecord, arrived: float
) -> bytes:
    try:
        encoded = await model.encode(asked.inputs(), asked.params(), record.request_id, arrived)
    except InputTooLongError as error:
        message = f"{too_many_tokens(error.tokens, error.most)}; shorten it, or set 'truncate' to 'END'."
        raise BadRequestError(message, param=asked.path(error.index), code="context_length_exceeded") from None
    except EngineError as error:
        raise from_engine(error, {}) from None
    record.prompt_tokens = encoded.tokens
    return endpoint.body(asked, model, encoded)


def _check(asked: EncoderFields, model: EncoderModel) -> list[str]:
    """Check what the model serves of a request; returns the unknown fields that the policy lets pass.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the encoder is unreachable.
    """
    model.check_ready()
    encoder, policies = model.settings.encoder, model.settings.policies
    for name in ("dimensions", "truncate"):
        how = model.capabilities.get(name)
        if getattr(asked, name, None) is not None and how is not None:
            _check_served(name, how)
    own = asked.input_type
    if own is not None and "input_type" not in encoder.request_fields and own not in encoder.input_types:
        names = ", ".join(map(repr, sorted(encoder.input_types)))
        known = f"it has {names}" if names else "it has none"
        message = f"This model does not know the input type {printable(own, 64)}: {known}."
        raise BadRequestError(message, param="input_type", code="invalid_value")
    asked.check_model(model)
    count = len(asked.inputs())
    if count > encoder.max_items:
        message = f"At most {encoder.max_items} inputs are allowed in a request, but it has {count}."
        raise BadRequestError(message, param=asked.path(0).partition("[")[0], code="array_above_max_length")
    return _unknown(asked, policies)


def _check_served(name: str, how: Capability) -> None:
    if how.how == "impossible":
        message = f"The parameter {name!r} is not supported with this value: {how.note}"
        raise BadRequestError(message, param=name, code="unsupported_parameter")


def _unknown(asked: EncoderFields, policies: ParameterPolicies) -> list[str]:
    names = list(asked.model_extra or {})
    if names and policies.unknown == "strict":
        message = f"Unrecognized request argument supplied: {printable(names[0], 256)}."
        raise BadRequestError(message, param=printable(names[0], 256), code="unsupported_parameter")
    return names


def usage(encoded: Encoded) -> dict[str, Any]:
    """The usage of a response: an encoder generates no tokens."""
    return {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}
