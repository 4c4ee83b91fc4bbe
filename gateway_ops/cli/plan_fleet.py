"""``gateway plan-fleet``: from a load to the number of Tritons and gateways, by a simulation."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from gateway_ops.cli.bench import tell_json
from gateway_ops.cli.console import fail

if TYPE_CHECKING:
    from gateway_ops.plan_fleet.engine_costs import BenchResult, EngineCosts
    from gateway_ops.plan_fleet.loads import RandomLoad, RecordedLoad
    from gateway_ops.plan_fleet.plan import FleetPlan


class Arrivals(str, Enum):
    """The distribution of arrivals."""

    POISSON = "poisson"
    EVEN = "even"
    BURSTS = "bursts"


class Balance(str, Enum):
    """The load balancing among Tritons."""

    LEAST_IN_FLIGHT = "least_in_flight"
    POWER_OF_TWO = "power_of_two"
    PREFIX = "prefix"


class TransportChoice(str, Enum):
    """The transport from the gateway to Triton."""

    H2 = "h2"
    GRPCIO = "grpcio"


def plan_fleet(  # noqa: PLR0913, PLR0917 - one for each option
    rate: Annotated[
        float | None, typer.Option(min=0.001, max=10_000_000, help="Requests per second in the busiest minutes.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="JSON lines file instead of --rate: a trace, or the gateway's log.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to take from the gateway's log.")] = None,
    scale: Annotated[
        float, typer.Option(min=0.0001, max=1e6, help="Factor by which a trace is replayed faster.")
    ] = 1.0,
    prompt_tokens: Annotated[str, typer.Option(help="Tokens per prompt: 500, or a range such as 200-800.")] = "200",
    answer_tokens: Annotated[str, typer.Option(help="Tokens per answer: a number or a range.")] = "128",
    arrivals: Annotated[
        Arrivals, typer.Option(help="At random, evenly, or at random in bursts of --burst requests.")
    ] = Arrivals.POISSON,
    burst: Annotated[int, typer.Option(min=1, max=10000, help="Requests per burst.")] = 10,
    shared_prefix: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a prompt that is a prefix shared with other prompts, 0 to 1.")
    ] = 0.0,
    prefixes: Annotated[int, typer.Option(min=1, help="Number of different shared prefixes.")] = 1,
    cached_prefixes: Annotated[
        int,
        typer.Option(
            min=0, help="Shared prefixes that the KV cache of one Triton holds; 0: prefixes are never reused."
        ),
    ] = 0,
    balance: Annotated[
        Balance, typer.Option(help="Balancing policy, as in triton.balance.policy.")
    ] = Balance.LEAST_IN_FLIGHT,
    bench: Annotated[
        list[Path] | None,
        typer.Option(help="Result of gateway bench --output; may be repeated, with different --streams."),
    ] = None,
    bench_tritons: Annotated[int, typer.Option(min=1, help="Number of Tritons that shared the load of --bench.")] = 1,
    slots: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Requests that one Triton runs concurrently.")
    ] = None,
    token_ms: Annotated[
        str | None, typer.Option(help="Milliseconds between tokens: 12.5, or by number of running requests 1:9,64:20.")
    ] = None,
    prefill_rate: Annotated[
        float | None, typer.Option(min=1, help="Prompt tokens that one Triton processes per second.")
    ] = None,
    ttft: Annotated[float, typer.Option(min=0.001, help="Target: seconds to the first token, 95th percentile.")] = 2.0,
    between: Annotated[
        float | None, typer.Option(min=0.1, help="Target: milliseconds between tokens, 95th percentile of answers.")
    ] = None,
    load_limit: Annotated[
        float, typer.Option(min=0.05, max=0.99, help="Share of the engines' capacity that the load may use, 0 to 1.")
    ] = 0.85,
    spare: Annotated[int, typer.Option(min=0, max=32, help="Spare Tritons per cell.")] = 1,
    transport: Annotated[
        TransportChoice, typer.Option(help="Transport between gateway and Triton.")
    ] = TransportChoice.H2,
    gateway_limit: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="Share of its time that a worker may be busy, 0 to 1.")
    ] = 0.6,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Maximum workers per gateway.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of lengths and arrivals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the JSON object to this file too.")] = None,
) -> None:
    """Size a fleet for a load; each figure with its source. Exit 1 if no number of Tritons meets the targets."""
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
            load = RandomLoad(rate or 0.0, prompt, answer, arrivals.value, burst, shared_prefix, prefixes, seed)
        results = [read_bench(path, bench_tritons) for path in bench or []]
        engine = engine_costs(results, slots, None if token_ms is None else Curve.parse(token_ms), prefill_rate)
        targets = Targets(ttft, None if between is None else between / 1000, load_limit, spare, gateway_limit, workers)
        gateway = measured_costs(transport.value)
        plan = FleetModel(engine, gateway, targets, balance.value, cached_prefixes).plan(load)
    except (SizingError, PlanError) as error:
        raise fail(error) from None
    sources = [*engine.sources, *gateway.sources, *_assumptions(load, engine, cached_prefixes)]
    compared = _compared(engine, results)
    found = {**plan.as_json(), "simulated_over_measured": compared, "sources": sources}
    if tell_json(found, as_json=as_json, output=output):
        return
    _show(plan, found, sources)


def _assumptions(load: RandomLoad | RecordedLoad, engine: EngineCosts, cached: int) -> list[str]:
    """What the figures do not cover, as sentences."""
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


def _show(plan: FleetPlan, found: dict[str, Any], sources: list[str]) -> None:
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
    times = Table("milliseconds", *found["queue_ms"], show_edge=False)
    for title, name in (
        ("queue", "queue_ms"),
        ("first token", "time_to_first_token_ms"),
        ("between tokens", "between_tokens_ms"),
        ("whole answer", "end_to_end_ms"),
    ):
        times.add_row(title, *("-" if value is None else f"{value:,.1f}" for value in found[name].values()))
    console.print(times)
    console.print(f"the gateway adds {need.wait_s * 1000:.2f} ms of waiting on average")
    limits = Table("exhausted first", "used", "of", "at so many times the load", show_edge=False)
    for resource in plan.resources:
        limits.add_row(resource.name, f"{resource.used:,.2f}", f"{resource.limit:,.10g}", f"{resource.factor:,.2f}")
    console.print(limits)
    for path, ratio in found["simulated_over_measured"].items():
        console.print(f"the simulation of {path}: {ratio:.2f} of its tokens/s", markup=False)
    console.print("Sources:")
    for each in sources:
        console.print(f"- {each}", markup=False)
