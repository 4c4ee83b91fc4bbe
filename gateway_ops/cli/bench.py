"""``gateway bench``: load a deployment over HTTP and show what its clients would notice."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gateway.text.harmless import harmless_values
from gateway_ops.cli.console import echo_json, fail
from gateway_ops.cli.shared_options import LOCAL_URL, ApiKey, Json, JsonFile, ServerUrl

if TYPE_CHECKING:
    from gateway_ops.bench.load import LoadSender
    from gateway_ops.bench.plan import LoadPlan

_INTERRUPTED = 130
_LIST_TIMEOUT_S = 10.0

_NONE = "no request began after the warm-up and ended within the duration; give a longer --duration"


def bench(  # noqa: PLR0913, PLR0917 - one for each option
    url: ServerUrl = LOCAL_URL,
    model: Annotated[str | None, typer.Option(help="Model of the requests; the first listed by default.")] = None,
    api_key: ApiKey = None,
    streams: Annotated[int | None, typer.Option(min=1, max=20000, help="Concurrent requests [8].")] = None,
    rate: Annotated[
        float | None,
        typer.Option(min=0.01, max=10000, help="Requests per second at random times, instead of --streams."),
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests in all, instead of a duration.")] = None,
    duration: Annotated[float | None, typer.Option(min=0.1, max=86400, help="Seconds to send requests [30].")] = None,
    warm_up: Annotated[float, typer.Option(min=0, max=600, help="Seconds of warm-up that are not measured.")] = 2.0,
    prompt_tokens: Annotated[str, typer.Option(help="Approximate tokens per prompt: 200, or a range 100-500.")] = "200",
    max_tokens: Annotated[str, typer.Option(help="Maximum tokens per answer: 128, or a range.")] = "128",
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Generate every answer to its token limit.")] = False,
    in_flight: Annotated[int, typer.Option(min=1, max=20000, help="With --rate: the most concurrent requests.")] = 1000,
    timeout: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds that a request may take.")] = 300.0,
    seed: Annotated[int, typer.Option(help="Seed of prompts, lengths and arrivals.")] = 0,
    as_json: Json = False,
    output: JsonFile = None,
) -> None:
    """Load an OpenAI-compatible server; show throughput, latencies and errors. Exit 1 if no request succeeded."""
    try:
        import gateway_ops.bench.exchange  # noqa: F401, PLC0415 - the gateway does not need aiohttp
    except ImportError:
        from gateway.settings.extras import pip_install  # noqa: PLC0415

        raise fail(f"this command needs aiohttp: {pip_install('bench')}") from None
    from gateway.serving.comparison.answer_forms import RequestFailedError  # noqa: PLC0415
    from gateway_ops.bench.plan import Lengths, LoadPlan, PlanError  # noqa: PLC0415

    try:
        plan = LoadPlan(
            streams=8 if streams is None and rate is None else streams,
            rate=rate,
            requests=requests,
            duration_s=30.0 if duration is None and requests is None else duration,
            warm_up_s=warm_up,
            in_flight=in_flight,
            timeout_s=timeout,
            prompt=Lengths.parse(prompt_tokens),
            answer=Lengths.parse(max_tokens),
            ignore_eos=ignore_eos,
            seed=seed,
        )
        found, interrupted = asyncio.run(
            _run(plan, url.rstrip("/").removesuffix("/v1"), model, api_key, live=not as_json)
        )
    except (PlanError, RequestFailedError) as error:
        raise fail(error) from None
    show_result(found, as_json=as_json, output=output)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not found["requests"]["completed"]:
        raise fail(f"no request succeeded: {found['requests']['failed'] or _NONE}")


async def _run(
    plan: LoadPlan, url: str, model: str | None, api_key: str | None, *, live: bool
) -> tuple[dict[str, Any], bool]:
    """Run a plan; return the summary, and whether Ctrl-C ended it early."""
    from gateway_ops.bench.exchange import first_model  # noqa: PLC0415
    from gateway_ops.bench.load import LoadSender, open_session  # noqa: PLC0415

    async with open_session(api_key) as session:
        name = model or await first_model(session, f"{url}/v1/models", _LIST_TIMEOUT_S)
        load = LoadSender(plan, session, f"{url}/v1/chat/completions", name)
        running = asyncio.create_task(load.run())
        interrupted = False
        try:
            await (watch(load, running) if live else running)
        except asyncio.CancelledError:  # Ctrl-C, from asyncio.run
            interrupted = True
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        summary = {"url": url, "model": name, "plan": asdict(plan), **load.tally.as_json(load.seconds)}
        return summary, interrupted


_REFRESH_S = 0.5
_TIMES = (
    ("first token", "time_to_first_token_ms"),
    ("between tokens", "inter_token_ms"),
    ("whole answer", "end_to_end_ms"),
)


async def watch(load: LoadSender, running: asyncio.Task[None]) -> None:
    """Wait for a load, and show its progress where standard error is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        await running
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        before, then = 0, time.perf_counter()
        while not running.done():
            await asyncio.wait((running,), timeout=_REFRESH_S)
            now, streamed = time.perf_counter(), load.tally.streamed
            live.update(_view(load, (streamed - before) / (now - then)), refresh=True)
            before, then = streamed, now
    await running


def _view(load: LoadSender, tokens_s: float) -> Table:
    tally = load.tally
    table = Table(show_header=False, box=None)
    table.add_row("phase", "warm-up" if load.warming else f"{load.seconds:.0f} s")
    table.add_row("in flight", str(tally.in_flight))
    table.add_row("completed", str(tally.completed))
    table.add_row("failed", f"{sum(tally.failed.values())}", style="red" if tally.failed else None)
    table.add_row("tokens/s", f"{tokens_s:,.0f}")
    table.add_row("first token p50 / p99", f"{_ms(tally.first.percentile(50))} / {_ms(tally.first.percentile(99))}")
    table.add_row("between p50 / p99", f"{_ms(tally.between.percentile(50))} / {_ms(tally.between.percentile(99))}")
    return table


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def show_result(result: dict[str, Any], *, as_json: bool, output: Path | None) -> None:
    """Print a summary, and write it to a file where one is given."""
    if not write_json(result, as_json=as_json, output=output):
        _show(result)


def write_json(result: dict[str, Any], *, as_json: bool, output: Path | None) -> bool:
    """Write an object to a file and to standard output where requested; returns whether it was printed."""
    if output is not None:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise fail(f"cannot write {output}: {error.strerror}") from None
    if as_json:
        echo_json(result)
    return as_json


def _show(result: dict[str, Any]) -> None:
    result = harmless_values(result)
    console = Console(highlight=False, file=sys.stdout)
    done = result["requests"]
    console.print(f"{result['model']} at {result['url']}, {result['seconds']:.1f} s", markup=False)
    table = Table("milliseconds", *(name for name in result["end_to_end_ms"]), show_edge=False)
    for title, key in _TIMES:
        table.add_row(title, *(_number(value, ",.1f") for value in result[key].values()))
    console.print(table)
    tokens = result["tokens"]
    console.print(f"{done['completed']} of {done['sent']} requests, {_number(result['requests_per_s'], '.2f')}/s")
    rate = _number(result["completion_tokens_per_s"], ",.0f")
    console.print(f"{_number(tokens['completion'], ',')} tokens, {rate}/s")
    console.print(f"{_number(tokens['prompt'], ',')} tokens in prompts")
    for kind, count in done["failed"].items():
        console.print(f"failed: {count} x {kind}", style="red", markup=False)
    if done["not_sent"]:
        console.print(f"not sent, too many in flight: {done['not_sent']}", style="red")
