"""``gateway top``: what a running gateway does now."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gateway_ops.cli.console import fail

if TYPE_CHECKING:
    from gateway_ops.watching.watched_gateway import WatchedGateway

_STATES = {"ready": "green", "out": "yellow", "away": "red"}
_MIB = 2**20


def top(
    url: Annotated[
        str, typer.Argument(help="Base URL of a gateway, or of its internal port.")
    ] = "http://127.0.0.1:9000",
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two scrapes.")] = 2.0,
    api_key: Annotated[
        str | None, typer.Option(help="Bearer key of the gateway.", envvar="GATEWAY_API_KEY", show_envvar=True)
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and end; also without a terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one interval as a JSON object.")] = False,
) -> None:
    """Watch models, endpoints, queues, tokens a second, times to the first token and refusals, until Ctrl-C."""
    from gateway_ops.chatting.harmless import one_line  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.chatting.streamed_answer import ChatError  # noqa: PLC0415
    from gateway_ops.watching.watched_gateway import WatchedGateway  # noqa: PLC0415

    console = Console(highlight=False, file=sys.stdout)
    try:
        watched = WatchedGateway(url, api_key)
        if console.is_terminal and not (once or as_json):
            _watch(watched, console, interval)
            return
        time.sleep(interval)
        found = watched.look()
    except ChatError as error:
        raise fail(one_line(str(error))) from None
    except KeyboardInterrupt:
        return
    if as_json:
        typer.echo(json.dumps({"url": watched.base, **found}, indent=2))
    else:
        console.print(_view(watched.base, found))


def _watch(watched: WatchedGateway, console: Console, interval: float) -> None:
    """Show one interval after the other; a gateway that is away is asked again."""
    from gateway_ops.chatting.harmless import one_line  # noqa: PLC0415
    from gateway_ops.chatting.streamed_answer import ChatError  # noqa: PLC0415

    begun = Text(f"{watched.base}: the first interval ends in {interval:g} s", "dim")
    with Live(begun, console=console, auto_refresh=False) as live:
        live.refresh()
        while True:
            time.sleep(interval)
            try:
                live.update(_view(watched.base, watched.look()), refresh=True)
            except ChatError as error:
                live.update(Text(one_line(str(error)), "bold red"), refresh=True)


def _view(base: str, found: dict[str, Any]) -> Group:
    return Group(*_parts(base, found))


def _parts(base: str, found: dict[str, Any]) -> Iterator[RenderableType]:
    total = found["total"]
    yield Text(f"{base}, {found['seconds']:.1f} s: {', '.join(_totals(total))}", "bold")
    table = Table("model", "state", box=None)
    table.columns[0].overflow = "fold"  # names are copied
    for title in ("running", "wait", "req/s", "tokens/s", "first ms", "next ms"):
        table.add_column(title, justify="right", no_wrap=True)
    for model in found["models"]:
        table.add_row(*_row(model))
    yield table
    for model in found["models"]:
        for words in _troubles(model):
            yield Text(f" {model['model']}: {words}", "red")
    endpoints = _endpoints(found["models"])
    if endpoints.rows:
        yield Text("")
        yield endpoints
    for triton in found["tritons"]:
        yield Text(f"Triton {triton['endpoint']}: {'; '.join(_of_triton(triton))}")
    yield Text("first ms, next ms: p50 / p99 to the first token, and of each further one", "dim")
    for sentence in found["missing"]:
        yield Text(sentence, "dim")


def _endpoints(models: list[dict[str, Any]]) -> Table:
    table = Table("model", "endpoint", "state", "running", box=None)
    for column in table.columns[:2]:
        column.overflow = "fold"
    for model in models:
        for each in model["endpoints"]:
            state = Text(each["state"], _STATES.get(each["state"], ""))
            table.add_row(Text(model["model"]), Text(each["endpoint"]), state, _number(each["running"]))
    return table


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
    refused = _counted(total["refused"]) + _counted(total["limited"], " by a key's limit on ")
    yield f"refused {', '.join(refused)}" if refused else "none refused"


def _row(model: dict[str, Any]) -> Iterator[Text]:
    yield Text(model["model"])
    state = model["stall"] or ("ready" if model["ready"] else "not ready")
    yield Text(state, "green" if state == "ready" else "red")
    limit = "" if model["limit"] is None else f" of {model['limit']}"
    yield Text(f"{_number(model['running'])}{limit}")
    yield Text(_number(model["waiting"]))
    for name in ("requests_per_s", "completion_tokens_per_s"):
        yield Text(_number(model[name], ",.1f"))
    for name in ("first_token_s", "next_token_s"):
        yield Text(" / ".join(_number(seconds and seconds * 1000, ",.0f") for seconds in model[name].values()))


def _troubles(model: dict[str, Any]) -> Iterator[str]:
    """What is not as it should be, as clauses."""
    from gateway_ops.chatting.harmless import one_line  # noqa: PLC0415

    if not model["ready"]:
        yield one_line(str(model["reason"] or "not ready; /health/ready says why"))
    refused = [*_counted(model["refused"]), *_counted(model["queue_refused"], " x queue ")]
    if refused:
        yield f"refused {', '.join(refused)}"
    if model["engine_failures"]:
        yield f"the engine failed {', '.join(_counted(model['engine_failures']))}"


def _of_triton(triton: dict[str, Any]) -> Iterator[str]:
    if not triton["up"]:
        yield "its metrics cannot be read"
    if triton["pending"] is not None:
        yield f"{triton['pending']} pending"
    for name, engine in triton["engines"].items():
        for kind, values in engine.items():
            told = ", ".join(f"{value:g} {label}" for label, value in sorted(values.items()))
            yield f"{name} {kind.replace('_', ' ')}: {told}"


def _counted(counts: dict[str, int], between: str = " x ") -> list[str]:
    return [f"{count}{between}{name}" for name, count in counts.items()]


def _number(value: float | None, form: str = ",") -> str:
    return "-" if value is None else format(value, form)
