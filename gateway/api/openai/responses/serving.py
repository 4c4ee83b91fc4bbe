"""Reads and checks a Responses request with the conversation before it, and prepares its answer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request

from gateway.api.openai.chat.serving import ChatPlan, check_chat, prepare_generations
from gateway.api.openai.conversations.contents import check_room
from gateway.api.openai.endpoint import CheckedRequest, Endpoint, check_request
from gateway.api.openai.parameters.check import IgnoredParameters
from gateway.api.openai.request_body import in_turn, read_request
from gateway.api.openai.request_json import RequestBody
from gateway.api.openai.responses.answer import ResponsesAnswer, ResponsesEvents
from gateway.api.openai.responses.previous import NOTHING, PreviousItems, before, needs_store
from gateway.api.openai.responses.protocol import ResponsesRequest, parse_responses_request
from gateway.api.openai.responses.translate import ResponsesTurn, parse_turn, translated
from gateway.api.openai.state import ApplicationState
from gateway.api.openai.translation import translated_plan
from gateway.http.access_log import RequestRecord, record_of
from gateway.serving.generator_model import GeneratorModel
from gateway.serving.registry import Registry
from gateway.settings.model_settings import SamplingDefaults
from gateway.telemetry.metrics import Metrics
from gateway.text.bad_request import BadRequestError


def check_turn(turn: ResponsesTurn, model: GeneratorModel) -> tuple[ResponsesTurn, IgnoredParameters]:
    """Check a request against its model; returns it without ignored parameters, and their names.

    Raises:
        EngineError: UNAVAILABLE while it is not known what the model can do.
        BadRequestError: for a parameter that the model cannot serve, by policy.
    """
    with turn.translation.renaming():
        chat, ignored = check_chat(turn.chat, model)
    turn = dataclasses.replace(turn, chat=chat)
    return turn, turn.ignored(ignored)


async def prepare(turn: ResponsesTurn, plan: ChatPlan, model: GeneratorModel, record: RequestRecord) -> ResponsesAnswer:
    """Prepare the answer to a Responses request; see ``prepare_generations``."""
    with turn.translation.renaming():
        most = 1 if turn.request.prewarms else None  # the engine's minimum; the token is not returned
        prepared = await prepare_generations(turn.chat, plan, model, record, clamp=True, max_tokens=most)
    return ResponsesAnswer(turn, prepared, plan.names, _echoed(turn, model.defaults))


def _echoed(turn: ResponsesTurn, defaults: SamplingDefaults) -> dict[str, Any]:
    """The fields of a response that are known before its answer is.

    Args:
        turn: as the policies of the model let it pass.
        defaults: of the model, for fields that the request leaves out.
    """
    request, chat, sent = turn.request, turn.chat, turn.sent
    drawn = {
        name: getattr(chat, name) if name in chat.model_fields_set else defaults.given.get(name, getattr(chat, name))
        for name in ("temperature", "top_p")
    }
    return {
        "model": chat.model,
        "instructions": sent["instructions"],
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": sent["max_tool_calls"],
        "metadata": sent["metadata"],
        "parallel_tool_calls": request.parallel_tool_calls,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": chat.reasoning_effort, "summary": None},
        "safety_identifier": request.safety_identifier,
        "service_tier": chat.tier or "default",
        "store": turn.response_store is not None,
        **drawn,
        "text": sent["text"],
        "tool_choice": sent["tool_choice"],
        "tools": sent["tools"],
        "top_logprobs": request.top_logprobs or 0,
        "truncation": "disabled",
        "user": request.user,
        **({"conversation": {"id": request.conversation.id}} if request.conversation else {}),
    }


RESPONSES: Endpoint[ResponsesTurn, ChatPlan, ResponsesAnswer] = Endpoint(
    parse_turn, check_turn, translated_plan, prepare, ResponsesEvents
)


async def begin_turn(
    request: Request,
    registry: Registry,
    metrics: Metrics,
    state: ApplicationState,
    parse: Callable[[dict[str, Any]], ResponsesRequest] = parse_responses_request,
) -> CheckedRequest[ResponsesTurn, ChatPlan]:
    """Read, parse and check a request, with the stored items that it names.

    Args:
        request: a request with an unread body.
        registry: the served models.
        metrics: counts ignored parameters.
        state: the stored state.
        parse: makes the request of a JSON object; raises ``BadRequestError``.

    Raises:
        BadRequestError: naming the parameter at fault.
        EngineError: UNAVAILABLE while the engine is unreachable.
        OpenAIError: 404 for an unknown model, 503 where the store cannot be used; see ``read_request`` for others.
    """
    record, kept = record_of(request.scope), state.of(request.scope)

    def check(fields: ResponsesRequest, earlier: PreviousItems) -> CheckedRequest[ResponsesTurn, ChatPlan]:
        return check_request(RESPONSES, translated(fields, earlier, kept), record, registry, metrics)

    def take(body: RequestBody) -> CheckedRequest[ResponsesTurn, ChatPlan] | tuple[ResponsesRequest, RequestBody]:
        asked = parse(body.fields)
        _check_state(asked, keeps=kept.store is not None)
        if needs_store(asked):
            return asked, body
        begun = check(asked, NOTHING)
        return begun.with_replaced(body.replaced).with_copy(registry.copies, request, body.raw)

    taken = await read_request(request, take)
    if isinstance(taken, CheckedRequest):
        return taken
    asked, body = taken
    size = len(body.raw)
    earlier = await before(kept, asked)
    if earlier.conversation is not None:
        count = 1 if isinstance(asked.input, str) else len(asked.input)
        check_room(len(earlier.conversation.items) + count, earlier.conversation.size + size, "conversation")
    begun = await in_turn(request, size + earlier.size, lambda: check(asked, earlier))
    return begun.with_replaced(body.replaced)


_NEED_STORE: Final = {
    "background": (
        "this gateway does not store responses; stream the response instead.",
        "Background responses must be stored; set 'store' to true.",
    ),
    "conversation": (
        "this gateway stores nothing between requests.",
        "'conversation' cannot be used with 'store': false because a conversation stores the items of its responses.",
    ),
}
"""Parameters that need a store, with the reasons for rejection without one and beside ``store: false``."""


def _check_state(fields: ResponsesRequest, *, keeps: bool) -> None:
    if fields.conversation is not None and fields.previous_response_id is not None:
        message = "'conversation' and 'previous_response_id' cannot be used together; send only one of them."
        raise BadRequestError(message, None, "mutually_exclusive_parameters")
    if fields.background and fields.prewarms:
        message = "'background' cannot be used with 'prompt_cache_options.prewarm', which stores no response."
        raise BadRequestError(message, "background", "invalid_value")
    for name, (nowhere, unkept) in _NEED_STORE.items():
        if getattr(fields, name) and not keeps:
            raise BadRequestError(f"The parameter {name!r} is not supported: {nowhere}", name, "unsupported_parameter")
        if getattr(fields, name) and fields.store is False and not fields.prewarms:
            raise BadRequestError(unkept, name, "invalid_value")
