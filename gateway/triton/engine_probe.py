"""Probes of an engine for facts that its configuration does not tell."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import anyio

from gateway.generation.engine import EngineError, ErrorKind, TokenGenerator
from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams
from gateway.text.guides.guide import Guide
from gateway.text.prompt.prompt import Prompt
from gateway.triton.error_mapping import NO_GUIDED_DECODING
from gateway.triton.guides import smallest_guide
from gateway.triton.response_stream import END_TIMEOUT_S

REJECTIONS = (ErrorKind.INVALID_REQUEST, ErrorKind.INTERNAL)
"""Kinds of errors by which an engine rejects what it does not take; any other says nothing of that."""


async def has_guided_decoder(engine: TokenGenerator) -> bool:
    """Probe whether an engine has a guided decoder, by a token with a guide.

    Returns:
        False where the engine reports that it has no guided decoder; other failures do not count.

    Raises:
        EngineError: Triton is not available.
    """
    error = await ask(engine, guide=smallest_guide(engine.features.guide_types))
    return error is None or error.message != NO_GUIDED_DECODING


async def takes_drafts(engine: TokenGenerator, *, model: bool) -> bool:
    """Probe whether an engine takes drafts, by two tokens with a draft of one.

    An engine does not always take the drafts that its model declares.

    Args:
        engine: the engine.
        model: whether a draft model makes the draft.

    Returns:
        False where the engine rejects the draft. A full queue or a late answer does not count as a rejection.

    Raises:
        EngineError: Triton is not available.
    """
    error = await ask(engine, max_tokens=2, **({"num_draft_tokens": 1} if model else {"draft": (0,)}))
    return error is None or error.kind not in REJECTIONS


def probe_request(guide: Guide | None = None, *, temperature: float = 0.0, **more: Any) -> GenerationRequest:
    """Make a request for one token."""
    return GenerationRequest(
        id=f"probe-{uuid.uuid4()}",
        prompt=Prompt(text="a", ids=(0,)),
        params=SamplingParams(temperature=temperature, guide=guide),
        **{"max_tokens": 1, **more},
    )


async def ask(
    engine: TokenGenerator, guide: Guide | None = None, *, first: bool = False, **more: Any
) -> EngineError | None:
    """Send a probe and return its failure.

    Args:
        engine: to ask.
        guide: of the answer.
        first: whether the first response is enough; another, its end as a rule, is waited for a second.
        more: fields of the request.

    Raises:
        EngineError: Triton is not available.
    """
    temperature = engine.features.capabilities.get("temperature")
    greedy = temperature is None or temperature.how != "impossible"
    request = probe_request(guide, **more, temperature=0.0 if greedy else 1.0)
    try:
        async with contextlib.aclosing(engine.generate(request)) as chunks:
            async for chunk in chunks:
                if chunk.failure is not None:
                    return chunk.failure
                if first:
                    # A cancel would meet the end, where it heeds the limit (wire contract 9.1, row 7).
                    with anyio.move_on_after(END_TIMEOUT_S), contextlib.suppress(EngineError):
                        await anext(chunks, None)
                    return None
    except EngineError as error:
        if error.kind is ErrorKind.UNAVAILABLE:
            raise
        return error
    return None
