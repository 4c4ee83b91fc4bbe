"""``gateway plan-fleet``: from a load to the number of Tritons and gateways, by a simulation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperOption

from gateway_ops.cli.bench import write_json
from gateway_ops.cli.console import fail
from gateway_ops.cli.shared_options import Json

if TYPE_CHECKING:
    from gateway_ops.plan_fleet.engine_costs import BenchResult, EngineCosts
    from gateway_ops.plan_fleet.loads import RandomLoad, RecordedLoad
    from gateway_ops.plan_fleet.plan import FleetPlan


def _more(**settings: Any) -> Any:
    """Make an option that only --help-all shows."""
    return typer.Option(hidden=True, **settings)


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for option in context.command.params:
            if isinstance(option, TyperOption):
                option.hidden = False
        typer.echo(context.get_help())
        raise typer.Exit


def plan_fleet(  # noqa: PLR0913, PLR0917 - one for each option
    rate: Annotated[float | None, typer.Option(min=0.001, max=10_000_000, help="Requests per second at peak.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Instead of --rate: a trace, or the gateway's log.")] = None,
    model: Annotated[str | None, _more(help="Model to take from the gateway's log.")] = None,
    scale: Annotated[float, _more(min=0.0001, max=1e6, help="Factor by which a trace is replayed faster.")] = 1.0,
    prompt_tokens: Annotated[str, typer.Option(help="Tokens per prompt: 500, or a range such as 200-800.")] = "200",
    answer_tokens: Annotated[str, typer.Option(help="Tokens per answer: a number or a range.")] = "128",
    arrivals: Annotated[
        Literal["poisson", "even", "bursts"], _more(help="At random, evenly, or in random bursts of --burst requests.")
    ] = "poisson",
    burst: Annotated[int, _more(min=1, max=10000, help="Requests per burst.")] = 10,
    shared_prefix: Annotated[float, _more(min=0, max=1, help="Shared prefix as a share of a prompt, 0 to 1.")] = 0.0,
    prefixes: Annotated[int, _more(min=1, help="Number of different shared prefixes.")] = 1,
    cached_prefixes: Annotated[int, _more(min=0, help="Shared prefixes in one Triton's KV cache; 0: no reuse.")] = 0,
    balance: Annotated[
        Literal["least_in_flight", "power_of_two", "prefix"], _more(help="Balancing policy, as triton.balance.policy.")
    ] = "least_in_flight",
    bench: Annotated[
        list[Path] | None, typer.Option(help="Result of gateway bench --output; repeatable, with other --streams.")
    ] = None,
    bench_tritons: Annotated[int, _more(min=1, help="Number of Tritons that shared the load of --bench.")] = 1,
    slots: Annotated[int | None, typer.Option(min=1, max=4096, help="Concurrent requests of one Triton.")] = None,
    token_ms: Annotated[
        str | None, typer.Option(help="Milliseconds between tokens: 12.5, or by number of running requests 1:9,64:20.")
    ] = None,
    prefill_rate: Annotated[float | None, typer.Option(min=1, help="Prompt tokens per second of one Triton.")] = None,
    ttft: Annotated[float, typer.Option(min=0.001, help="Target: seconds to the first token, 95th percentile.")] = 2.0,
    between: Annotated[float | None, _more(min=0.1, help="Target: ms between tokens, 95th percentile.")] = None,
    load_limit: Annotated[float, _more(min=0.05, max=0.99, help="Usable share of engines' capacity, 0 to 1.")] = 0.85,
    spare: Annotated[int, _more(min=0, max=32, help="Spare Tritons per cell.")] = 1,
    transport: Annotated[Literal["h2", "grpcio"], _more(help="Transport between gateway and Triton.")] = "h2",
    gateway_limit: Annotated[float, _more(min=0.05, max=0.95, help="Busy share of a worker's time, 0 to 1.")] = 0.6,
    workers: Annotated[int, _more(min=1, max=256, help="Maximum workers per gateway.")] = 8,
    seed: Annotated[int, _more(help="Seed of lengths and arrivals.")] = 0,
    as_json: Json = False,
    output: Annotated[Path | None, _more(help="Write the JSON object to this file too.")] = None,
    _help_all: Annotated[
        bool, typer.Option("--help-all", help="Show all options and exit.", is_eager=True, callback=_show_all)
    ] = False,
) -> None:
    """Size a fleet for a load; each figure with its source. Exit 1 if no number of Tritons meets the targets.

    --help-all shows all options.
    """
    from gateway_ops.bench.plan import Lengths, PlanError  # noqa: PLC0415 - the other commands need none of it
    from gateway_ops.plan_fleet.curves import Curve, SizingError  # noqa: PLC0415
    from gateway_ops.plan_fleet.engine_costs import engine_costs, read_bench  # noqa: PLC0415
    from gateway_ops.plan_fleet.gateway_costs import measured_costs  # noqa: PLC0415
    from gateway_ops.plan_fleet.loads import RandomLoad, read_trace  # noqa: PLC0415
    from gateway_ops.plan_fleet.plan import FleetModel, Targets  # noqa: PLC0415

    if (rate is None) == (trace is None):
        raise fail("give either --rate or --trace", 2)
    try:
        load: RandomLoad | RecordedLoad
        if trace is not None:
            load = read_trace(trace, seed, model).faster(scale)
        else:
            prompt, answer = Lengths.parse(prompt_tokens), Lengths.parse(answer_tokens)
            load = RandomLoad(rate or 0.0, prompt, answer, arrivals, burst, shared_prefix, prefixes, seed)
        results = [read_bench(path, bench_tritons) for path in bench or []]
        engine = engine_costs(results, slots, None if token_ms is None else Curve.parse(token_ms), prefill_rate)
        targets = Targets(ttft, None if between is None else between / 1000, load_limit, spare, gateway_limit, workers)
        gateway = measured_costs(transport)
        plan = FleetModel(engine, gateway, targets, balance, cached_prefixes).plan(load)
    except (SizingError, PlanError) as error:
        raise fail(error) from None
    sources = [*engine.sources, *gateway.sources, *_assumptions(load, engine, cached_prefixes)]
    compared = _compared(engine, results)
    found = {**plan.as_json(), "simulated_over_measured": compared, "sources": sources}
    if write_json(found, as_json=as_json, output=output):
        return
    _show(plan, found, sources)


def _assumptions(load: RandomLoad | RecordedLoad, engine: EngineCosts, cached: int) -> list[str]:
    """The assumptions of the figures, as sentences."""
    longest = engine.prefill_s.largest
    said = [
        "a prompt is computed alone, and no token is made meanwhile; a KV cache that is full before all slots are, "
        "and what engines do about it, are not simulated: give the --slots that fit into it"
    ]
    if load.mean_prompt > longest and not any("--prefill-rate" in each for each in engine.sources):
        said.append(f"times for prompts of more than {longest:.0f} tokens were not measured and are extrapolated")
    has_prefixes = getattr(load, "shared", 0) or any(each.shared for each in getattr(load, "recorded", ()))
    if has_prefixes and not cached:
        said.append("shared prefixes save nothing here: --cached-prefixes sets how many prefixes one Triton holds")
    return said


def _compared(engine: EngineCosts, results: list[BenchResult]) -> dict[str, float]:
    """The simulated tokens a second over the measured, by file of a result."""
    from gateway_ops.plan_fleet.plan import compare  # noqa: PLC0415

    return {str(each.path): round(compare(engine, each), 3) for each in results if round(each.streams) <= engine.slots}


def _show(plan: FleetPlan, result: dict[str, Any], sources: list[str]) -> None:
    console = Console(highlight=False, file=sys.stdout)
    need = plan.need
    cells = f" in {plan.cells:,} cells" if plan.cells > 1 else ""
    rate = f"{plan.rate:,.0f}" if plan.rate >= 1000 else f"{plan.rate:g}"
    console.print(f"{rate} requests/s: {plan.tritons:,} Tritons and {plan.spare:,} spare{cells}")
    console.print(
        f"{plan.gateways:,} gateways of {plan.workers} workers: {need.cores:,.2f} cores, "
        f"{need.memory_bytes / 1e9:,.2f} GB"
    )
    console.print(f"{plan.in_flight:,.0f} requests in flight, {plan.seen.occupied:.1f} slots of each Triton in use")
    times = Table("milliseconds", *result["queue_ms"], show_edge=False)
    for title, name in (
        ("queue", "queue_ms"),
        ("first token", "time_to_first_token_ms"),
        ("between tokens", "between_tokens_ms"),
        ("whole answer", "end_to_end_ms"),
    ):
        times.add_row(title, *("-" if value is None else f"{value:,.1f}" for value in result[name].values()))
    console.print(times)
    console.print(f"the gateway adds {need.wait_s * 1000:.2f} ms of waiting on average")
    limits = Table("exhausted first", "used", "of", "at so many times the load", show_edge=False)
    for resource in plan.resources:
        limits.add_row(resource.name, f"{resource.used:,.2f}", f"{resource.limit:,.10g}", f"{resource.factor:,.2f}")
    console.print(limits)
    for path, ratio in result["simulated_over_measured"].items():
        console.print(f"the simulation of {path}: {ratio:.2f} of its tokens/s", markup=False)
    console.print("Sources:")
    for each in sources:
        console.print(f"- {each}", markup=False)
