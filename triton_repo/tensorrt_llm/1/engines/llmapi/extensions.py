"""Features that TensorRT-LLM's LLM API has and other engines behind `LlmEngine` lack."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from wire.request import RejectedError, reject_asked
from wire.response import Perf

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from wire.request import Guide, LoraTask, Request, Retention

# The kind of guide, and the field of `GuidedDecodingParams`; a plain ``json`` has a flag instead of a text.
_GUIDES = {"json_schema": "json", "regex": "regex", "ebnf_grammar": "grammar", "structural_tag": "structural_tag"}


@dataclass(frozen=True)
class Extensions:
    """The features of one version, with the classes that its requests are made of; None or False: rejected by name.

    Attributes:
        guided: `GuidedDecodingParams`.
        guided_backend: ``xgrammar`` or ``llguidance``.
        lora: from an adapter's task to a `LoRARequest`.
        metrics: whether the engine reports the cost of a request.
        to_array: makes a NumPy array of a `torch.Tensor`; with it logits are given, and prompts are scored by logits.
            (What the LLM API makes of its own ``prompt_logprobs`` leaves out tokens that are not among the best, up to
            1.2.)
        min_p: whether its sampler applies ``min_p``.
        top_p_decay: whether its sampler applies ``top_p_decay`` and what goes with it.
        beams: the one width that its requests have; 1 is no beam search.
        beam_log_probs: whether its sampler gives log-probs of beams.
        retention: from what a request says of its blocks to a `KvCacheRetentionConfig`.
        cache_salt: whether requests can be isolated from each other's KV blocks.
        long_bad_words: whether `set_bad_words` reaches its sampler.
    """

    guided: Callable[..., Any] | None = None
    guided_backend: str = ""
    lora: Callable[[LoraTask], Any] | None = None
    metrics: bool = False
    to_array: Callable[[Any], NDArray[np.float32]] | None = None
    min_p: bool = False
    top_p_decay: bool = False
    beams: int = 1
    beam_log_probs: bool = False
    retention: Callable[[Retention], Any] | None = None
    cache_salt: bool = False
    long_bad_words: bool = False

    def sampling_arguments(self, request: Request) -> dict[str, Any]:
        """Keyword arguments of `SamplingParams`.

        Raises:
            RejectedError: something that the engine does not have.
        """
        self._check(request)
        sampling = request.sampling
        given = {
            "return_context_logits": request.context_logits or request.prompt_log_probs is not None,
            "return_generation_logits": request.generation_logits,
            "return_perf_metrics": request.perf_metrics and self.metrics,
            "min_p": sampling.min_p,
        }
        arguments: dict[str, Any] = {name: value for name, value in given.items() if value}
        if sampling.top_p_decay < 1:
            arguments["top_p_decay"] = sampling.top_p_decay
            if sampling.top_p_min:
                arguments["top_p_min"] = sampling.top_p_min
            if sampling.top_p_reset_id >= 0:
                arguments["top_p_reset_ids"] = sampling.top_p_reset_id
        if request.guide is not None:
            arguments["guided_decoding"] = self._guide(request.guide)
        return arguments

    def generate_arguments(self, request: Request) -> dict[str, Any]:
        """Keyword arguments of `LLM.generate_async`.

        Raises:
            RejectedError: the adapter is not there, or the engine takes no salt.
        """
        arguments: dict[str, Any] = {}
        if request.cache_salt:
            reject_asked({"cache_salt": not self.cache_salt}, "the engine")
            arguments["cache_salt"] = request.cache_salt
        if request.lora is not None and self.lora is not None:
            arguments["lora_request"] = self.lora(request.lora)
        if request.retention is not None and self.retention is not None:
            arguments["kv_cache_retention_config"] = self.retention(request.retention)
        return arguments

    def _check(self, request: Request) -> None:
        sampling, no_logits = request.sampling, self.to_array is None
        asked = {
            "num_prompt_log_probs": no_logits and request.prompt_log_probs is not None,
            "return_context_logits": no_logits and request.context_logits,
            "return_generation_logits": no_logits and request.generation_logits,
        }
        reject_asked(asked, "the engine")
        asked = {
            "min_p": sampling.min_p > 0 and not self.min_p,
            "runtime_top_p_decay": sampling.top_p_decay < 1 and not self.top_p_decay,
        }
        reject_asked(asked, "the engine's sampler")

    def _guide(self, guide: Guide) -> Any:
        if self.guided is None:
            raise RejectedError("guided_decoding_guide is not supported by the engine")
        if guide.kind == "json":
            return self.guided(json_object=True)
        if guide.kind == "structural_tag" and self.guided_backend != "xgrammar":
            raise RejectedError("guided_decoding_guide_type structural_tag is not supported by the engine's backend")
        return self.guided(**{_GUIDES[guide.kind]: guide.text})


def retention_config(kind: Any, retention: Retention) -> Any:
    """TensorRT-LLM's `KvCacheRetentionConfig`.

    Args:
        kind: that class. `TokenRangeRetentionConfig` is part of it: start, end, priority, duration, in this order.
        retention: what a request says.
    """
    ranges = [
        kind.TokenRangeRetentionConfig(one.start, one.end, one.priority, _milliseconds(one.duration_ms))
        for one in retention.ranges
    ]
    arguments: dict[str, Any] = {"token_range_retention_configs": ranges}
    if retention.decode_priority is not None:
        arguments["decode_retention_priority"] = retention.decode_priority
    if (duration := _milliseconds(retention.decode_duration_ms)) is not None:
        arguments["decode_duration_ms"] = duration
    try:
        return kind(**arguments)
    except TypeError:  # some versions' own default of this is None, which their binding does not take for a text
        return kind(**arguments, directory="")


def _milliseconds(duration: int | None) -> timedelta | None:
    return None if duration is None else timedelta(milliseconds=duration)


def performance(own: Perf, metrics: Any) -> Perf:
    """The cost of a request, by TensorRT-LLM's `RequestPerfMetrics`; without these, as measured here.

    Args:
        own: the times measured here.
        metrics: of the request's output, or None.
    """
    if metrics is None:
        return own
    times, cache, drafts = metrics.timing_metrics, metrics.kv_cache_metrics, metrics.speculative_decoding
    return Perf(
        arrival_ns=_nanoseconds(times.arrival_time),
        first_scheduled_ns=_nanoseconds(times.first_scheduled_time),
        first_token_ns=_nanoseconds(times.first_token_time),
        last_token_ns=_nanoseconds(times.last_token_time),
        blocks=(int(cache.num_total_allocated_blocks), int(cache.num_reused_blocks)),
        drafts=(int(drafts.total_draft_tokens), int(drafts.total_accepted_draft_tokens))
        if drafts.total_draft_tokens
        else None,
    )


def _nanoseconds(time: Any) -> int:
    return int(time.total_seconds() * 1e9)  # a timedelta of a monotonic clock
