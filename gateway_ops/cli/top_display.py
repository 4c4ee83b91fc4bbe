"""The display of ``gateway top`` for one interval, in the width of a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gateway.text.harmless import harmless_values
from gateway_ops.cli.fitted_table import Column, fitted, packed

_STATES = {"ready": "green", "loading": "yellow", "failing": "yellow"}
_MIB = 2**20
_MODELS = (
    Column("model", name=True),
    Column("state"),
    Column("running", reserved=7),
    Column("wait", spare=1, reserved=4),
    Column("req/s", spare=4, reserved=5),
    Column("tokens/s", reserved=8),
    Column("first ms", spare=2, reserved=13),
    Column("next ms", spare=3, reserved=9),
)
_ENDPOINTS = (
    Column("model", name=True),
    Column("endpoint", name=True),
    Column("state"),
    Column("running", reserved=7),
)
_LEGEND = {"first ms": "to the first token", "next ms": "of each further token"}


def view(base: str, result: dict[str, Any], width: int) -> Group:
    """Show an interval.

    Args:
        base: the address of the gateway.
        result: as of ``activity``.
        width: width of the terminal in cells; only sentences are wrapped.
    """
    return Group(*_parts(base, harmless_values(result), width))


def _parts(base: str, result: dict[str, Any], width: int) -> Iterator[RenderableType]:
    first, *others = _totals(result["total"])
    yield Text(packed([f"{base}, {result['seconds']:.1f} s: {first}", *others], width), "bold")
    table, left_out = fitted(_MODELS, [list(_row(model)) for model in result["models"]], width)
    yield table
    for model in result["models"]:
        for words in _troubles(model):
            yield Text(f" {model['model']}: {words}", "red")
        if model["slow"] and model["slow"]["count"]:
            yield Text(f" {model['model']}: {_slow(model['slow'])}", "yellow")
    endpoints = [(model["model"], each) for model in result["models"] for each in model["endpoints"]]
    if endpoints:
        yield Text("")
        yield fitted(_ENDPOINTS, [list(_endpoint(*each)) for each in endpoints], width)[0]
    for triton in result["tritons"]:
        yield Text(packed([f"Triton {triton['endpoint']}: {_heard(triton)}", *_of_triton(triton)], width))
    if legend := {title: words for title, words in _LEGEND.items() if title not in left_out}:
        yield Text(f"{', '.join(legend)}: p50 / p99 {', '.join(legend.values())}", "dim")
    if left_out:
        yield Text(f"columns that do not fit: {', '.join(left_out)}", "dim")
    for sentence in result["missing"]:
        yield Text(sentence, "dim")


def _totals(total: dict[str, Any]) -> Iterator[str]:
    for name in ("running", "waiting"):
        if total[name] is not None:
            yield f"{total[name]} {name}"
    for name, title in (("requests_per_s", "requests/s"), ("completion_tokens_per_s", "tokens/s")):
        if total[name] is not None:
            yield f"{total[name]:,.1f} {title}"
    if total["kv_cache_usage"] is not None:
        yield f"KV cache {total['kv_cache_usage']:.0%}"
    if total["memory_bytes"] is not None:
        limit = f" of {total['memory_limit_bytes'] / _MIB:,.0f}" if total["memory_limit_bytes"] else ""
        yield f"memory {total['memory_bytes'] / _MIB:,.0f}{limit} MiB"
    if total["overload"]:
        yield f"memory beyond the {total['overload']} limit"
    rejected = _counted(total["refused"]) + _counted(total["limited"], " by a key's limit on ")
    yield f"rejected {', '.join(rejected)}" if rejected else "none rejected"


def _row(model: dict[str, Any]) -> Iterator[Text]:
    yield Text(model["model"])
    state = model["state"] or ("ready" if model["ready"] else "not ready")
    share = f" {model['failing_share']:.0%}" if model["failing_share"] else ""
    yield Text(f"{state}{share}", _STATES.get(state, "red"))
    limit = "" if model["limit"] is None else f" of {model['limit']}"
    yield Text(f"{_number(model['running'])}{limit}")
    yield Text(_number(model["waiting"]))
    for name in ("requests_per_s", "completion_tokens_per_s"):
        yield Text(_number(model[name], ",.1f"))
    for name in ("first_token_s", "next_token_s"):
        yield Text(" / ".join(_number(seconds and seconds * 1000, ",.0f") for seconds in model[name].values()))


def _endpoint(model: str, endpoint: dict[str, Any]) -> Iterator[Text]:
    yield Text(model)
    yield Text(endpoint["endpoint"])
    yield Text(endpoint["state"], _STATES.get(endpoint["state"], "red"))
    yield Text(_number(endpoint["running"]))


def _troubles(model: dict[str, Any]) -> Iterator[str]:
    """Faults, as clauses."""
    if not model["ready"]:
        yield str(model["reason"] or "not ready; /health/ready says why")
    elif model["state"] == "failing" and model["reason"]:
        yield str(model["reason"])
    if model["degraded"]:
        yield f"not all workers serve the model: {model['degraded']}"
    for each in model["endpoints"]:
        if each["reason"] and each["state"] != "ready":
            yield f"{each['endpoint']} is {each['state']}: {each['reason']}"
    rejected = [*_counted(model["refused"]), *_counted(model["queue_refused"], " x queue ")]
    if rejected:
        yield f"rejected {', '.join(rejected)}"
    if model["engine_failures"]:
        yield f"the engine failed {', '.join(_counted(model['engine_failures']))}"


def _slow(slow: dict[str, float]) -> str:
    return f"{slow['count']:,} of {slow['of']:,} first tokens came after more than {slow['later_than_s']:g} s"


def _heard(triton: dict[str, Any]) -> str:
    if not triton["up"]:
        return "its metrics are unreachable"
    return "queue not reported" if triton["pending"] is None else f"{triton['pending']:,} pending"


def _of_triton(triton: dict[str, Any]) -> Iterator[str]:
    """The most useful metrics of an engine; the JSON object has all of them."""
    for name, engine in triton["engines"].items():
        requests, blocks = (engine.get(kind, {}) for kind in ("requests", "kv_cache_blocks"))
        if "active" in requests:
            yield f"{name} {_of(requests, 'active')}"
        if "waiting" in requests:
            yield f"{name} {requests['waiting']:,.0f} waiting"
        if "used" in blocks:
            yield f"{name} KV blocks {_of(blocks, 'used')}"
        if "reused" in blocks:
            yield f"{blocks['reused']:,.0f} reused"


def _of(values: Mapping[str, float], part: str) -> str:
    whole = f" of {values['max']:,.0f}" if "max" in values else ""
    return f"{values[part]:,.0f}{whole} {part}"


def _counted(counts: dict[str, int], between: str = " x ") -> list[str]:
    return [f"{count}{between}{name}" for name, count in counts.items()]


def _number(value: float | None, form: str = ",") -> str:
    return "-" if value is None else format(value, form)
