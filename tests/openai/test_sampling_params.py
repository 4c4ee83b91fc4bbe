"""From the fields of a request to the parameters of an answer."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gateway.config.model_settings import SamplingDefaults
from gateway.generation import SamplingParams
from gateway.openai.chat.protocol import ChatCompletionRequest
from gateway.openai.completions.protocol import CompletionRequest
from gateway.openai.generation_fields import GenerationFields

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
COMPLETION: dict[str, Any] = {"model": "m", "prompt": "Hi"}


@pytest.mark.parametrize(("kind", "least"), [(ChatCompletionRequest, CHAT), (CompletionRequest, COMPLETION)])
def test_a_field_that_is_left_out_means_its_default(kind: type[GenerationFields], least: dict[str, Any]) -> None:
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    defaults = {
        name: field.get_default(call_default_factory=True)
        for name, field in kind.model_fields.items()
        if name in names and not field.is_required()
    }
    given = {name: value for name, value in defaults.items() if value is not None}  # null is absent
    assert len(given) > 15
    short, long = (kind.model_validate(fields).sampling_params(SamplingDefaults()) for fields in (least, least | given))
    assert short == long == SamplingParams()


def test_defaults_of_the_model_hold_where_a_field_is_left_out() -> None:
    defaults = SamplingDefaults(temperature=0.5, top_p=0.25, max_tokens=7)
    request = ChatCompletionRequest.model_validate(CHAT | {"top_p": 1.0})
    assert request.sampling_params(defaults) == SamplingParams(temperature=0.5, max_tokens=7)
