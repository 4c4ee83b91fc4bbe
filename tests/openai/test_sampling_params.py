"""From the fields of a request to the parameters of an answer."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.completions.protocol import CompletionRequest
from gateway.api.openai.generation_fields import GenerationFields
from gateway.generation import SamplingParams
from gateway.settings.model_settings import SamplingDefaults
from tests.app.harness import gateway
from tests.app.scripted import MODEL

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


@pytest.mark.parametrize(("path", "least"), [("/v1/chat/completions", CHAT), ("/v1/completions", COMPLETION)])
async def test_an_unknown_field_may_have_the_name_of_a_parameter_within(
    folder: Path, path: str, least: dict[str, Any]
) -> None:
    kind = ChatCompletionRequest if least is CHAT else CompletionRequest
    names = {field.name for field in dataclasses.fields(SamplingParams)} - kind.model_fields.keys()
    assert {"beam_width", "guide", "end_ids"} <= names
    async with gateway(folder) as running:
        for name in names:
            body = least | {"model": MODEL, "max_tokens": 1, name: 3}
            answer = await running.client.post(path, json=body)
            assert answer.status_code in (200, 400), name  # a parameter of another endpoint may be refused


def test_defaults_of_the_model_hold_where_a_field_is_left_out() -> None:
    defaults = SamplingDefaults(temperature=0.5, top_p=0.25, max_tokens=7)
    request = ChatCompletionRequest.model_validate(CHAT | {"top_p": 1.0})
    assert request.sampling_params(defaults) == SamplingParams(temperature=0.5, max_tokens=7)
