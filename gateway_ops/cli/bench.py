"""``gateway bench``: load a deployment over HTTP and show what its clients would notice."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway_ops.cli.bench_view import tell, watch
from gateway_ops.cli.console import fail

if TYPE_CHECKING:
    from gateway_ops.bench.plan import Plan

_INTERRUPTED = 130
_LIST_TIMEOUT_S = 10.0

_NONE = "none began after the warm-up and ended within the duration; give a longer --duration"


def bench(  # noqa: PLR0913, PLR0917 - one for each option
    url: Annotated[str, typer.Argument(help="Base URL of the server, without /v1.")] = "http://127.0.0.1:9000",
    model: Annotated[str | None, typer.Option(help="Model to ask for; the first one listed when not given.")] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Bearer key of the server.", envvar="GATEWAY_API_KEY", show_envvar=True)
    ] = None,
    streams: Annotated[int | None, typer.Option(min=1, max=20000, help="Requests at the same time [8].")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.01, max=10000, help="Requests a second, at random (Poisson), not streams.")
    ] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Requests in all, instead of a duration.")] = None,
    duration: Annotated[
        float | None, typer.Option(min=0.1, max=86400, help="Seconds in which requests are sent [30].")
    ] = None,
    warm_up: Annotated[float, typer.Option(min=0, max=600, help="Seconds at the beginning that do not count.")] = 2.0,
    prompt_tokens: Annotated[str, typer.Option(help="Tokens of a prompt, about: 200, or a range as 100-500.")] = "200",
    max_tokens: Annotated[str, typer.Option(help="Tokens of an answer at most: 128, or a range.")] = "128",
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Let answers go on to their limit.")] = False,
    in_flight: Annotated[int, typer.Option(min=1, max=20000, help="With a rate: requests at once, at most.")] = 1000,
    timeout: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds that a request may take.")] = 300.0,
    seed: Annotated[int, typer.Option(help="Of prompts, lengths and arrivals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON object to this file too.")] = None,
) -> None:
    """Load a server that speaks OpenAI's API; show throughput, times to tokens and errors. Exit 1 if nothing worked."""
    try:
        from gateway_ops.bench.exchange import FailedError  # noqa: PLC0415 - aiohttp is no dependency of the gateway
    except ImportError:
        raise fail("this command needs aiohttp: pip install 'triton-openai-gateway[bench]'") from None
    from gateway_ops.bench.plan import Lengths, Plan, PlanError  # noqa: PLC0415

    try:
        plan = Plan(
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
        found, interrupted = asyncio.run(_run(plan, url.rstrip("/"), model, api_key, live=not as_json))
    except (PlanError, FailedError) as error:
        raise fail(error) from None
    tell(found, as_json=as_json, output=output)
    if interrupted:
        raise typer.Exit(_INTERRUPTED)
    if not found["requests"]["completed"]:
        raise fail(f"no request was answered: {found['requests']['failed'] or _NONE}")


async def _run(
    plan: Plan, url: str, model: str | None, api_key: str | None, *, live: bool
) -> tuple[dict[str, Any], bool]:
    """Run a plan; the summary, and whether it was ended early by Ctrl-C."""
    from gateway_ops.bench.exchange import first_model  # noqa: PLC0415
    from gateway_ops.bench.load import Load, open_session  # noqa: PLC0415

    async with open_session(api_key) as session:
        name = model or await first_model(session, f"{url}/v1/models", _LIST_TIMEOUT_S)
        load = Load(plan, session, f"{url}/v1/chat/completions", name)
        running = asyncio.create_task(load.run())
        interrupted = False
        try:
            await (watch(load, running) if live else running)
        except asyncio.CancelledError:  # asyncio.run's way to tell of Ctrl-C
            interrupted = True
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        summary = {"url": url, "model": name, "plan": asdict(plan), **load.tally.as_json(load.seconds)}
        return summary, interrupted
