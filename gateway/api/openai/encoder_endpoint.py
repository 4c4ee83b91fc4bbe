"""The flow of a request to an encoder, from its body to its response."""

from __future__ import annotations

import asyncio
import base64
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import orjson
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.openai.chat.answer import answer_head
from gateway.api.openai.encoder_fields import TRUNCATIONS, EncoderFields
from gateway.api.openai.endpoint import find_for_task, name_header, note_model
from gateway.api.openai.errors import CLIENT_GONE, from_engine
from gateway.api.openai.parameters.check import ParameterPolicies
from gateway.api.openai.request_body import read_request
from gateway.api.openai.request_json import MOST_ITEMS, RequestBody
from gateway.api.openai.validation import validated
from gateway.generation import Capability, EngineError, ErrorKind, too_many_tokens
from gateway.generation.engine import MalformedOutputError
from gateway.http.access_log import RequestRecord, record_of
from gateway.http.client_connection import ClientDisconnectedError, while_connected
from gateway.http.routing import DirectRoute
from gateway.serving.encoder_model import EncoderModel, EncoderResult
from gateway.serving.pair_similarity import score_pairs
from gateway.serving.registry import Registry
from gateway.settings import Task
from gateway.telemetry.metrics import Metrics
from gateway.text.bad_request import BadRequestError, first_of, printable
from gateway.text.tokens.encoder_tokenizer import EncoderInput, InputTooLongError

_MOST_NAMED = 8  # inputs in a message
_ROWS = 16  # of a response that are written while the event loop waits
_CUT = Capability("emulated", "The gateway cuts texts that are too long, by the model's tokenizer.")
_NO_TOKENIZER = Capability("impossible", "To cut texts needs a tokenizer; set tokenizer in the model's settings.")
_NO_LENGTH = Capability("impossible", "The maximum length is not known; set max_seq_len in the model's settings.")
_SCORES = Capability("impossible", "This model returns scores, not vectors.")
_NO_PAIRS = Capability("impossible", "This model reads each text by itself; truncate_prompt_tokens cuts all texts.")
_SCALED = Capability("emulated", "The gateway scales vectors to length 1.")

Fields = TypeVar("Fields", bound=EncoderFields)


@dataclass(frozen=True, slots=True)
class EncoderEndpoint(Generic[Fields]):
    """The parts of a request that differ between endpoints of encoders.

    Attributes:
        routes: the name of each by its path.
        summary: a sentence for the OpenAPI document.
        fields: the schema of a request.
        tasks: tasks of the models that serve the endpoint.
        body: makes the response, which may have arrays.
    """

    routes: Mapping[str, str]
    summary: str
    fields: type[Fields]
    tasks: tuple[Task, ...]
    body: Callable[[Fields, EncoderModel, EncoderResult], dict[str, Any]]


def encoder_router(registry: Registry, metrics: Metrics, *endpoints: EncoderEndpoint[Any]) -> APIRouter:
    """Make the routes of endpoints.

    Args:
        registry: the served models, started.
        metrics: count ignored fields.
        endpoints: the endpoints of encoders.
    """
    router = APIRouter(route_class=DirectRoute)
    for endpoint in endpoints:

        async def serve(request: Request, endpoint: EncoderEndpoint[Any] = endpoint) -> Response:
            return await _serve(endpoint, request, registry, metrics)

        serve.__doc__ = endpoint.summary
        for path, name in endpoint.routes.items():
            router.add_api_route(path, serve, methods=["POST"], name=name)
    return router


async def _serve(endpoint: EncoderEndpoint[Fields], request: Request, registry: Registry, metrics: Metrics) -> Response:
    """Read a request, encode its inputs, and respond.

    Raises:
        BadRequestError: naming the parameter at fault.
        OpenAIError: 404 for an unknown model; see ``read_request`` for others.
    """
    record, arrived = record_of(request.scope), time.perf_counter()

    def parse_and_check(body: RequestBody) -> tuple[Fields, EncoderModel, Sequence[EncoderInput], dict[str, str]]:
        given = {name: value for name, value in body.fields.items() if value is not None}
        fields = validated(endpoint.fields, given)
        if fields.user is not None:
            record.annotations = {"user": fields.user[:512]}
        model = find_for_task(registry, fields.model, EncoderModel, endpoint.tasks)
        note_model(record, model)
        ignored = _check(fields, model)
        if ignored:
            metrics.count_ignored(model.name, ignored)
        inputs = fields.inputs()
        _check_length(fields.truncate_prompt_tokens, inputs[0], model)
        _check_number(fields, len(inputs), model.settings.encoder.max_items)
        shown = ignored if model.settings.policies.unknown == "warn" else []
        return fields, model, inputs, name_header("x-ignored-parameters", [*shown, *body.replaced])

    fields, model, inputs, headers = await read_request(request, parse_and_check, most_messages=MOST_ITEMS)
    work = _encoded(endpoint, fields, model, inputs, record, arrived)
    try:
        body = await while_connected(request.scope, request.receive, work)
    except ClientDisconnectedError:
        record.disconnected = True
        return Response(status_code=CLIENT_GONE)
    return Response(body, headers=headers, media_type="application/json")


async def _encoded(
    endpoint: EncoderEndpoint[Fields],
    fields: Fields,
    model: EncoderModel,
    inputs: Sequence[EncoderInput],
    record: RequestRecord,
    arrived: float,
) -> bytes:
    try:
        params = await fields.checked_params(model)
        encode = model.encode
        if model.task == "embed" and inputs[0].pair is not None:
            encode = functools.partial(score_pairs, model)
        encoded = await encode(inputs, params, record.request_id, arrived)
    except InputTooLongError as error:
        cuts = encoder_capabilities(model)["truncate"].how != "impossible" and fields.truncation() == "none"
        cuts = cuts and (model.task == "embed" or not error.of_query)  # of a pair that is read as one no query is cut
        advice = "; shorten it, or set 'truncate' to 'END'." if cuts else "; shorten it."
        message = too_many_tokens(error.tokens, error.limit) + advice
        param = fields.path(error.index, of_query=error.of_query)
        raise BadRequestError(message, param=param, code="context_length_exceeded") from None
    except EngineError as error:
        if error.kind is ErrorKind.CONTEXT_LENGTH and model.task == "rerank":  # the model says not which text is long
            error.items = [(index, len(inputs[index].text) > len(inputs[index].pair or "")) for index, _ in error.items]
        paths = [*dict.fromkeys(fields.path(index, of_query=first) for index, first in error.items)]
        if paths:
            shown, more = first_of(paths, _MOST_NAMED)
            error.message = f"{error.message.rstrip('.')} ({' '.join([', '.join(shown), more]).rstrip()})."
        of_query = all(first for _, first in error.items) if paths else error.param == "query"
        named = paths[0] if len(paths) == 1 else _inputs_of(fields, of_query=of_query)
        raise from_engine(error, dict.fromkeys(("prompt", "input", "query"), named)) from None
    record.prompt_tokens = encoded.tokens
    return await _written(endpoint.body(fields, model, encoded))


async def _written(body: dict[str, Any]) -> bytes:
    """The JSON of a body, whose rows are written a few at a time: two million numbers take a tenth of a second."""
    rows: Sequence[Any] = body.get("data", ())
    parts: list[bytes] = []
    for start in range(0, len(rows), _ROWS):
        if start:
            await asyncio.sleep(0)
        parts += [b",", _json(rows[start : start + _ROWS])[1:-1]]
    if not parts:
        return _json(body)
    before, begin, after = _json({**body, "data": []}).partition(b'"data":[')
    return b"".join([before, begin, *parts[1:], after])


def _json(value: Any) -> bytes:
    return orjson.dumps(value, lambda row: base64.b64encode(row).decode(), orjson.OPT_SERIALIZE_NUMPY)


def encoder_capabilities(model: EncoderModel) -> dict[str, Capability]:
    """An encoder's capability for each field of a request, by name; empty before discovery."""
    if model.features is None:
        return {}
    found = dict(model.capabilities)
    cut = _NO_TOKENIZER if model.vocab_size is None else _CUT
    found["truncate_prompt_tokens"] = found["truncation_side"] = cut
    if not _is_native(model, "truncate"):
        found["truncate"] = _NO_LENGTH if cut is _CUT and model.max_seq_len is None else cut
    if model.task == "rerank":
        found["max_tokens_per_doc"] = cut
    if model.task == "embed":
        found["max_tokens_per_doc"] = _NO_PAIRS
        found["normalize"] = _SCALED
    else:
        found["dimensions"] = found["normalize"] = _SCORES
    return found


def _is_native(model: EncoderModel, name: str) -> bool:
    """Whether the model takes a field by itself, as the settings or its own configuration say."""
    known = model.capabilities.get(name)
    return known is not None and known.how == "native"


def _check(fields: EncoderFields, model: EncoderModel) -> list[str]:
    """Check what the model serves of a request; returns the unknown fields that the policy lets pass.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the encoder is unreachable.
    """
    model.check_ready()
    encoder, capabilities = model.settings.encoder, encoder_capabilities(model)
    for name in sorted(fields.effective_fields() & capabilities.keys()):
        if capabilities[name].how == "impossible" and (name, model.task) != ("dimensions", "embed"):
            message = f"The parameter {name!r} is not supported by this model: {capabilities[name].note}"
            raise BadRequestError(message, param=name, code="unsupported_parameter")
    if fields.truncation_side and TRUNCATIONS[fields.truncation_side] != fields.truncation():
        given = "contradicts 'truncate'" if fields.truncate else "has no effect without 'truncate_prompt_tokens'"
        message = f"'truncation_side' {given}."
        raise BadRequestError(message, param="truncation_side", code="invalid_value")
    own = fields.input_type
    if own is not None and not _is_native(model, "input_type") and own not in encoder.input_types:
        names = ", ".join(map(repr, sorted(encoder.input_types)))
        message = f"This model does not know the input type {printable(own, 64)}; it has {names}."
        raise BadRequestError(message, param="input_type", code="invalid_value")
    _check_prefix(fields, model)
    fields.check_model(model)
    return _unknown(fields, model.settings.policies)


def _check_prefix(fields: EncoderFields, model: EncoderModel) -> None:
    """Reject what would have the model itself cut off a prefix."""
    prefix = model.prefix(fields.input_type)
    by_model = model.vocab_size is None or model.max_seq_len is None
    if prefix and by_model and fields.truncation() == "start" and fields.truncate_prompt_tokens is None:
        message = f"The model would cut off the prefix {prefix!r} of its settings; set 'truncate' to 'END'."
        raise BadRequestError(message, param="truncate", code="unsupported_parameter")


def _check_length(given: int | None, first: EncoderInput, model: EncoderModel) -> None:
    """Check that the most tokens leave room for each text of an input beside the special tokens of texts."""
    name, most, tokenizer = "truncate_prompt_tokens", model.max_seq_len, model.tokenizer
    if given is None or tokenizer is None:
        return
    pair = first.pair is not None and model.task != "embed"
    least = 1 if first.ids else tokenizer.special_tokens(pair=pair) + 1 + pair
    if given != -1 and not least <= given <= (most or given):
        code = "integer_below_min_value" if given < least else "integer_above_max_value"
        bound = "" if most is None else f" and at most {most}, the model's maximum"
        why = "" if least == 1 else ", for special tokens and one token of each text"
        raise BadRequestError(
            f"{name!r} must be at least {least}{why}{bound}; -1 is the maximum.", param=name, code=code
        )
    if given == -1 and most is None:
        message = f"The parameter {name!r} is not supported with this value: {_NO_LENGTH.note}"
        raise BadRequestError(message, param=name, code="unsupported_parameter")


def _check_number(fields: EncoderFields, count: int, most: int) -> None:
    if count > most:
        name = _inputs_of(fields)
        message = (
            f"Invalid '{name}': array too long. Expected an array with maximum length {most}, but got an array with "
            f"length {count} instead."
        )
        raise BadRequestError(message, param=name, code="array_above_max_length")


def _inputs_of(fields: EncoderFields, *, of_query: bool = False) -> str:
    """The field with the inputs, or with the queries of pairs."""
    return fields.path(0, of_query=of_query).partition("[")[0]


def _unknown(fields: EncoderFields, policies: ParameterPolicies) -> list[str]:
    names = list(fields.model_extra or {})
    if names and policies.unknown == "strict":
        message = f"Unrecognized request argument supplied: {printable(names[0], 256)}."
        raise BadRequestError(message, param=printable(names[0], 256), code="unsupported_parameter")
    return names


def list_of(prefix: str, model: EncoderModel, data: Sequence[Any], encoded: EncoderResult) -> dict[str, Any]:
    """Make the list response of vLLM's endpoints, with a new id."""
    return {**answer_head(prefix, "list", model.name, int(time.time())), "data": data, "usage": usage(encoded)}


def usage(encoded: EncoderResult) -> dict[str, Any]:
    """Make the usage of a response: prompt tokens only."""
    return {"prompt_tokens": encoded.tokens, "total_tokens": encoded.tokens}


def relevance(encoded: EncoderResult) -> NDArray[np.float32]:
    """The score of each pair: the model's only score, or the score of the second of two classes.

    Raises:
        MalformedOutputError: the model has more than two classes.
    """
    classes = encoded.values.shape[1]
    if classes > 2:
        detail = f"{classes} scores for a pair"
        raise MalformedOutputError(detail, f"The model returned {detail}, not one.")
    return encoded.values[:, -1]
