"""Requests to engines for tests that say no more than what they are about."""

from __future__ import annotations

import dataclasses
from typing import Any

from gateway.generation import GenerationRequest, SamplingParams
from gateway.serving.engine_requests import engine_seed
from gateway.text.prompt.prompt import Prompt

_PARAMS = {field.name for field in dataclasses.fields(SamplingParams)} - {
    field.name for field in dataclasses.fields(GenerationRequest)
}


def generation_request(
    request_id: str, prompt: Prompt, max_tokens: int = 100, params: SamplingParams | None = None, **fields: Any
) -> GenerationRequest:
    """A request with fields of its own and of its parameters; a seed among the latter is the request's."""
    params = dataclasses.replace(
        params or SamplingParams(), **{name: fields.pop(name) for name in _PARAMS & fields.keys()}
    )
    if params.seed is not None:
        fields.setdefault("seed", engine_seed(params.seed))
    return GenerationRequest(request_id, prompt, max_tokens, params, **fields)
