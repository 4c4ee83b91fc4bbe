"""Requests that are like one before but for id, prompt, length and seed: the rest of them is not built again."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable

from tritonclient.grpc import service_pb2

from gateway.generation.request import GenerationRequest
from gateway.generation.sampling_params import SamplingParams

_MOST = 64
# What differs from request to request, what is not sent as it is, and what only an unusual request has (`_is_usual`).
_OWN = {
    "id", "prompt", "max_tokens", "seed", "end_texts", "params",
    "params.bad_words", "params.clamp_max_tokens", "params.end_ids", "params.ignore_eos",
    "params.include_stop_str_in_output", "params.max_tokens", "params.max_tokens_name", "params.n",
    "params.num_draft_tokens", "params.prediction", "params.prompt_table", "params.return_token_ids", "params.seed",
    "params.skip_special_tokens", "params.stop", "params.stream", "params.thinking_token_budget",
    "params.visible_ids",
}  # fmt: skip
_UNUSUAL = {
    "bad_word_ids", "draft", "lora", "prompt_table",
    "params.cache_salt", "params.guide", "params.logit_bias", "params.prompt_logprobs", "params.stop_token_ids",
}  # fmt: skip

_fields = {field.name for field in dataclasses.fields(GenerationRequest)}
_fields |= {f"params.{field.name}" for field in dataclasses.fields(SamplingParams)}
_key: Callable[[GenerationRequest], Hashable] = operator.attrgetter(*sorted(_fields - _OWN - _UNUSUAL))
_unusual = operator.attrgetter(*sorted(_UNUSUAL - {"params.prompt_logprobs"}))


class RequestCache:
    """The parts that requests have in common, by what they ask for.

    Most clients ask for the same each time. Building the tensors of it again took a tenth of a short request.

    Args:
        build: makes that part of a request; it must not look at the id, prompt, length or seed of a usual one.
    """

    def __init__(self, build: Callable[[GenerationRequest], service_pb2.ModelInferRequest]) -> None:
        self._build = build
        self._built: dict[Hashable, service_pb2.ModelInferRequest] = {}

    def common(self, request: GenerationRequest) -> service_pb2.ModelInferRequest:
        """The part of a request that others have, too; not to be changed.

        Raises:
            EngineError: it cannot be built.
        """
        if not _is_usual(request):
            return self._build(request)
        key = _key(request)
        built = self._built.get(key)
        if built is None:
            if len(self._built) >= _MOST:
                self._built.clear()
            built = self._built[key] = self._build(request)
        return built


def _is_usual(request: GenerationRequest) -> bool:
    """Whether it has nothing that is large, or that the prompt decides about."""
    return request.params.prompt_logprobs is None and not any(_unusual(request))
