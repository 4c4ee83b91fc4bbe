"""The activity of a gateway in an interval, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gateway_ops.top import SLOW_S
from gateway_ops.top.scrapes import Interval

_FIRST_TOKEN = "gateway_time_to_first_token_seconds"  # noqa: S105 - a metric
_NEXT_TOKEN = "gateway_inter_token_seconds"  # noqa: S105 - a metric
_REJECTED = 400
_ENGINE = {
    "requests": ("nv_trt_llm_request_metrics", "request_type"),
    "kv_cache_blocks": ("nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type"),
}

_SLIM = (
    "These are the reduced metrics (server.metrics): without rates, times, rejections and endpoints; running requests "
    "are counted with those that wait. The internal port has all, or a key where it is set to `key`."
)

Listed = Mapping[str, Mapping[str, Any]]
_NOTHING: Listed = MappingProxyType({})


def activity(
    interval: Interval, listed: Listed | None, slow_s: float = SLOW_S, health: Listed = _NOTHING
) -> dict[str, Any]:
    """Summarise an interval; null stands for values that the gateway does not report.

    Args:
        interval: two scrapes of ``/metrics``.
        listed: objects ``gateway`` of ``/v1/models``, by model; None where they could not be read.
        slow_s: seconds to the first token beyond which an answer is slow.
        health: health of ``/health/ready``, by model.
    """
    now = interval.now
    names = now.names("gateway_model_ready", "model")
    said = {name: _plain(each) for name, each in (listed or {}).items()}
    return {
        "seconds": round(interval.seconds, 3),
        "total": _total(interval),
        "models": [_model(interval, name, said.get(name, {}) | _plain(health.get(name, {})), slow_s) for name in names],
        "tritons": list(_tritons(interval)),
        "missing": list(_missing(interval, listed, health)),
    }


def _plain(said: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out values of a form that no gateway sends, which another server may."""
    return {name: value for name, value in said.items() if isinstance(value, str | bool) or name == "endpoints"}


def _total(interval: Interval) -> dict[str, Any]:
    now = interval.now
    overload = [labels["state"] for labels, value in now.matching("gateway_overload_state") if value]
    return {
        "running": _whole(now.value("gateway_num_requests_running")),
        "waiting": _whole(now.value("gateway_num_requests_waiting")),
        "requests_per_s": _rounded(_generations(interval)),
        "completion_tokens_per_s": _rounded(interval.rate("gateway_completion_tokens_total")),
        "prompt_tokens_per_s": _rounded(interval.rate("gateway_prompt_tokens_total")),
        "refused": _statuses(interval),
        "limited": _counts(interval.grown("gateway_key_limited_total", "limit")),
        "kv_cache_usage": _rounded(now.value("gateway_kv_cache_usage")),
        "memory_bytes": _whole(now.value("gateway_memory_bytes")),
        "memory_limit_bytes": _whole(now.value("gateway_memory_limit_bytes")),
        "overload": overload[0] if overload else None,
    }


def _generations(interval: Interval) -> float | None:
    """Responses to requests for models, a second: none of those for health, lists and metrics."""
    if "gateway_requests" not in interval.now.families:
        return None
    grown = interval.grown("gateway_requests_total", "model")
    return sum(count for model, count in grown.items() if model) / interval.seconds


def _model(interval: Interval, model: str, said: Mapping[str, Any], slow_s: float) -> dict[str, Any]:
    now = interval.now
    running = now.value("gateway_generations_running", model=model)
    return {
        "model": model,
        "ready": bool(now.value("gateway_model_ready", model=model)),
        "state": _state(interval, "gateway_model_state", model=model) or said.get("state"),
        "reason": said.get("reason"),
        "degraded": said.get("degraded"),
        "failing_share": now.value("gateway_model_failing_share", model=model) or None,
        # The slim page has one number of both.
        "running": _whole(now.value("gateway_requests_in_flight", model=model) if running is None else running),
        "waiting": _whole(now.value("gateway_generations_waiting", model=model)),
        "limit": _whole(now.value("gateway_generations_limit", model=model)),
        "requests_per_s": _rounded(interval.rate("gateway_requests_total", model=model)),
        "completion_tokens_per_s": _rounded(interval.rate("gateway_completion_tokens_total", model=model)),
        "prompt_tokens_per_s": _rounded(interval.rate("gateway_prompt_tokens_total", model=model)),
        "first_token_s": _times(interval, _FIRST_TOKEN, model),
        "next_token_s": _times(interval, _NEXT_TOKEN, model),
        "slow": _slow(interval, model, slow_s),
        "refused": _statuses(interval, model=model),
        "queue_refused": _counts(interval.grown("gateway_queue_refusals_total", "reason", model=model)),
        "engine_failures": _counts(interval.grown("gateway_engine_failures_total", "kind", model=model)),
        "cancelled": _whole(sum(interval.grown("gateway_requests_cancelled_total", "model", model=model).values())),
        "endpoints": list(_endpoints(interval, model, said.get("endpoints"))),
    }


def _times(interval: Interval, name: str, model: str) -> dict[str, float | None]:
    return {
        f"p{share}": _rounded(interval.quantile(share / 100, name, model=model), 4) for share in (50, 99)
    }  # of observations within the interval


def _slow(interval: Interval, model: str, seconds: float) -> dict[str, float] | None:
    """Answers whose first token came late; the bound is one of the histogram's."""
    found = interval.above(seconds, _FIRST_TOKEN, model=model)
    return None if found is None else dict(zip(("count", "of", "later_than_s"), found, strict=True))


def _state(interval: Interval, name: str, **labels: str) -> str | None:
    return next((found["state"] for found, value in interval.now.matching(name, **labels) if value), None)


def _endpoints(interval: Interval, model: str, states: Any) -> Iterator[dict[str, Any]]:
    now = interval.now
    reasons = states if isinstance(states, dict) else {}  # the list of models has them without addresses
    for labels, value in now.matching("gateway_endpoint_state", model=model):
        if value:
            own = {"model": model, "endpoint": labels["endpoint"]}
            yield {
                "endpoint": labels["endpoint"],
                "state": labels["state"],
                "reason": reasons.get(labels["endpoint"], {}).get("reason"),
                "failing_share": now.value("gateway_endpoint_failing_share", **own) or None,
                "running": _whole(now.value("gateway_endpoint_requests_in_flight", **own)),
            }


def _tritons(interval: Interval) -> Iterator[dict[str, Any]]:
    """The metrics of each Triton and of its engines."""
    now = interval.now
    for labels, up in now.matching("gateway_triton_metrics_up"):
        endpoint = labels["endpoint"]
        engines: dict[str, dict[str, dict[str, float]]] = {}
        for kind, (name, label) in _ENGINE.items():
            for found, value in now.matching(name, endpoint=endpoint):
                if label in found:
                    engines.setdefault(found.get("model", ""), {}).setdefault(kind, {})[found[label]] = value
        pending = _whole(now.value("nv_inference_pending_request_count", endpoint=endpoint))
        yield {"endpoint": endpoint, "up": bool(up), "pending": pending, "engines": engines}


def _missing(interval: Interval, listed: Listed | None, health: Listed) -> Iterator[str]:
    now = interval.now
    if _FIRST_TOKEN not in now.families:
        yield _SLIM
    elif not now.names("gateway_triton_metrics_up", "endpoint"):
        yield "No queue or KV cache of Triton: models[].triton.metrics_url is not set."
    if listed is None and not any("reason" in each for each in health.values()):
        yield "No reasons: /v1/models could not be read. The key is missing or wrong, or this is the internal port."


def _statuses(interval: Interval, **labels: str) -> dict[str, int]:
    """Responses that are errors, by status."""
    grown = _counts(interval.grown("gateway_requests_total", "status", **labels))
    return {status: count for status, count in grown.items() if status.isdigit() and int(status) >= _REJECTED}


def _counts(grown: Mapping[str, float]) -> dict[str, int]:
    return {name: round(count) for name, count in sorted(grown.items()) if count}


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def listed_by_name(models: Sequence[Mapping[str, Any]]) -> Listed:
    """The object ``gateway`` of each model in ``/v1/models``."""
    return {each["id"]: each["gateway"] for each in models if isinstance(each.get("gateway"), dict)}
