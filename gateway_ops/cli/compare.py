"""``gateway compare``: the same requests to two models or servers, and what differs in their answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from gateway.serving.comparison.facts import FactPair
from gateway.text.bad_request import first_of
from gateway.text.harmless import harmless_values
from gateway_ops.cli.bench import write_json
from gateway_ops.cli.console import fail
from gateway_ops.cli.shared_options import LOCAL_URL, Json, JsonFile

if TYPE_CHECKING:
    from gateway_ops.compare.comparison import Comparison, ComparisonPlan
    from gateway_ops.compare.preparation import SampleOptions
    from gateway_ops.compare.request_lines import RequestFile
    from gateway_ops.compare.targets import TargetAddress

_INTERRUPTED = 130
_UNCOMPARED = 2
_SAMPLE = 100
_REPORT_VERSION = 1
_EXAMPLES = 5


class ComparedAspect(str, Enum):
    """Aspects that a comparison may leave out."""

    TEXT = "text"
    REASONING = "reasoning"
    CALLS = "calls"
    FINISH_REASON = "finish_reason"
    USAGE = "usage"
    LOGPROBS = "logprobs"
    CHOICES = "choices"
    VECTORS = "vectors"
    SCORES = "scores"
    LABEL = "label"


def compare(  # noqa: PLR0913, PLR0917 - one for each option
    a: Annotated[str | None, typer.Argument(help="Target A: URL#model, URL of one model, or a model of --url.")] = None,
    b: Annotated[str | None, typer.Argument(help="Target B, in the same form.")] = None,
    mirror: Annotated[
        str | None, typer.Option(help="Show a mirror's report: URL#model, or URL, of a gateway's internal port.")
    ] = None,
    url: Annotated[str, typer.Option(help="Base URL of the server whose models are named as targets.")] = LOCAL_URL,
    requests: Annotated[Path | None, typer.Option(help="JSON lines: OpenAI's batch format, or request bodies.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, max=100_000, help="Generated requests to send [100].")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the generated requests.")] = 0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Send requests of a file with temperature 0.")] = False,
    repeat: Annotated[bool, typer.Option("--repeat", help="Compare A with itself too, to measure noise.")] = False,
    ignore: Annotated[list[ComparedAspect] | None, typer.Option(help="Do not compare this aspect; repeatable.")] = None,
    tolerance: Annotated[float, typer.Option(min=0, help="Difference of log-probs that counts as equal.")] = 0.05,
    least_cosine: Annotated[float, typer.Option(min=-1, max=1, help="Cosine of vectors that count as equal.")] = 0.999,
    score_tolerance: Annotated[float, typer.Option(min=0, help="Difference of scores that counts as equal.")] = 0.01,
    at_once: Annotated[int, typer.Option(min=1, max=256, help="Concurrent requests.")] = 4,
    timeout: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds that a response may take.")] = 300.0,
    api_key: Annotated[
        str | None, typer.Option(help="Bearer key of A, and of B on the same server.", envvar="GATEWAY_API_KEY")
    ] = None,
    api_key_b: Annotated[str | None, typer.Option(help="Bearer key of B.", envvar="GATEWAY_API_KEY_B")] = None,
    show_text: Annotated[bool, typer.Option("--show-text", help="Show texts, which may contain secrets.")] = False,
    as_json: Json = False,
    output: JsonFile = None,
) -> None:
    """Send the same requests to two models and show what differs. Exit 0: nothing; 1: something; 2: not compared."""
    try:
        from gateway_ops.compare.comparison import ComparisonPlan  # noqa: PLC0415 - the gateway does not need aiohttp
    except ImportError:
        from gateway.settings.extras import pip_install  # noqa: PLC0415

        raise fail(f"this command needs aiohttp: {pip_install('bench')}", _UNCOMPARED) from None
    from gateway.serving.comparison.verdict import ComparisonRules  # noqa: PLC0415
    from gateway_ops.compare.preparation import SampleOptions  # noqa: PLC0415
    from gateway_ops.compare.request_lines import RequestFile, RequestFileError  # noqa: PLC0415
    from gateway_ops.compare.targets import TargetAddress, TargetError  # noqa: PLC0415

    if mirror is not None:
        raise typer.Exit(_show_mirror(mirror, timeout, given=a is not None, as_json=as_json, output=output))
    if a is None or b is None:
        raise fail("name two targets, or give --mirror", _UNCOMPARED)
    if requests is not None and sample is not None:
        raise fail("give either --requests or --sample", _UNCOMPARED)
    ignored = frozenset(each.value for each in ignore or ())
    rules = ComparisonRules(ignored, tolerance, least_cosine=least_cosine, score_tolerance=score_tolerance)
    plan = ComparisonPlan(at_once, timeout, repeat, rules, show_text)
    try:
        addresses = TargetAddress.parse("A", a, url), TargetAddress.parse("B", b, url)
        wanted = (
            SampleOptions(sample or _SAMPLE, seed) if requests is None else RequestFile.check(requests, greedy=greedy)
        )
        keys = (api_key, api_key_b or (api_key if addresses[0].origin == addresses[1].origin else None))
        comparison, found, interrupted = asyncio.run(_run(addresses, keys, wanted, plan, quiet=as_json))
    except (TargetError, RequestFileError) as error:
        raise fail(error, _UNCOMPARED) from None
    _tell(found, as_json=as_json, output=output)
    raise typer.Exit(_INTERRUPTED if interrupted else comparison.report.exit_status)


def _show_mirror(url: str, timeout_s: float, *, given: bool, as_json: bool, output: Path | None) -> int:
    """Show the report of a gateway's mirror; the exit status."""
    from gateway.serving.comparison.report import exit_status  # noqa: PLC0415
    from gateway_ops.compare.mirrors import read_report  # noqa: PLC0415
    from gateway_ops.compare.targets import TargetAddress, TargetError  # noqa: PLC0415

    if given:
        raise fail("--mirror shows what a gateway has compared: give no targets", _UNCOMPARED)
    try:
        found = asyncio.run(read_report(TargetAddress.parse("--mirror", url, url), timeout_s))
    except TargetError as error:
        raise fail(error, _UNCOMPARED) from None
    if not as_json:
        shown = harmless_values(found)
        labels = [f"{shown[side]['model']}, of {shown[side]['url']}" for side in ("a", "b")]
        _say(labels, [FactPair(each["what"], each["a"], each["b"]) for each in shown["facts"]], shown["warnings"])
        _say_mirror(shown["mirror"])
    _tell(found, as_json=as_json, output=output)
    return exit_status(found["requests"])


def _say_mirror(mirror: dict[str, Any]) -> None:
    since = datetime.fromtimestamp(mirror["since"], timezone.utc)
    parts = [f"a share of {mirror['share']:g} since {since:%Y-%m-%d %H:%M:%S} UTC"]
    parts += [f"{mirror[name]} {name}" for name in ("running", "waiting") if mirror[name]]
    parts += [f"{count} dropped: {reason.replace('_', ' ')}" for reason, count in sorted(mirror["dropped"].items())]
    _console().print(", ".join(parts), soft_wrap=True)


async def _run(
    addresses: tuple[TargetAddress, TargetAddress],
    keys: tuple[str | None, str | None],
    source: RequestFile | SampleOptions,
    plan: ComparisonPlan,
    *,
    quiet: bool,
) -> tuple[Comparison, dict[str, Any], bool]:
    """Run a comparison; return it, its report, and whether Ctrl-C ended it early."""
    from gateway_ops.bench.load import open_session  # noqa: PLC0415
    from gateway_ops.compare.comparison import Comparison  # noqa: PLC0415
    from gateway_ops.compare.preparation import prepare  # noqa: PLC0415

    async with open_session(keys[0]) as of_a, open_session(keys[1]) as of_b:
        prepared = await prepare(addresses, (of_a, of_b), source)
        if not quiet:
            _say([target.label for target in prepared.targets], prepared.facts, prepared.warnings)
        comparison = Comparison(*prepared.targets, plan)
        console = Console(stderr=True)
        interrupted = False
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("requests", total=prepared.requests.count)
            try:
                await comparison.run(prepared.requests, lambda: progress.advance(task))
            except asyncio.CancelledError:  # Ctrl-C, from asyncio.run
                interrupted = True
        return (
            comparison,
            {"version": _REPORT_VERSION, **prepared.as_json(), **comparison.report.as_json()},
            interrupted,
        )


def _say(labels: Sequence[str], facts: Iterable[FactPair], warnings: Iterable[str]) -> None:
    """Say who is compared, and what of it is not the same or not known."""
    console = _console()
    for side, label in zip(("A", "B"), labels, strict=True):
        console.print(Text(f"{side}: {label}"), soft_wrap=True)
    table = Table("", "A", "B", show_edge=False)
    for fact in facts:
        if not fact.same:
            table.add_row(*(Text(each or "unknown") for each in (fact.name, fact.a, fact.b)))
    if table.rows:
        console.print(table)
    for warning in warnings:
        console.print(Text(warning, "yellow"), soft_wrap=True)


def _tell(result: dict[str, Any], *, as_json: bool, output: Path | None) -> None:
    try:
        printed = write_json(result, as_json=as_json, output=output)
    except typer.Exit:  # status 1 means that something differs
        raise typer.Exit(_UNCOMPARED) from None
    if not printed:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    result = harmless_values(result)
    console = _console()
    console.print()
    noise = result["noise"]
    if noise is not None:
        aspects = "".join(f", {count} in {aspect}" for aspect, count in noise["in"].items())
        console.print(f"A differs from itself in {noise['differed']} of {noise['asked']} requests{aspects}")
    counts = result["requests"]
    console.print(f"{counts['sent']} requests: " + ", ".join(_counted(counts)))
    if result["differs_in"]:
        console.print("differs in: " + ", ".join(f"{name} ({count})" for name, count in result["differs_in"].items()))
    unequal = [row for row in result["rows"] if row["outcome"] != "equal"]
    examples, more = first_of(unequal, _EXAMPLES)
    for row in examples:
        console.print(Text(_example(row)), soft_wrap=True)
    if more:
        console.print(f"{more}: --output FILE has all of them")
    console.print(_delays(result["delays"]))


def _counted(counts: dict[str, int]) -> list[str]:
    return [f"{count} {_outcome(name)}" for name, count in counts.items() if count and name != "sent"] or ["none"]


def _outcome(name: str) -> str:
    """Words for an outcome of the JSON report, such as ``refused_by_a``."""
    return name.replace("_", " ").replace("refused", "rejected")


def _example(row: dict[str, Any]) -> str:
    name = f" ({row['name']})" if row["name"] else ""
    said = [_difference(each) for each in row.get("differences", ())]
    said += [f"{side.upper()} {words}" for side in ("a", "b") if (words := _unanswered(row[side]))]
    return f"- {row['request']}{name}: {_outcome(row['outcome'])}: {'; '.join(said)}"


def _difference(each: dict[str, Any]) -> str:
    facts = [f"{name.replace('_', ' ')} {_sides(value)}" for name, value in each.items() if name not in _NAMED]
    sides = [f"A {each['a']}, B {each['b']}"] if "a" in each else []
    around = [f"A {each['around']['a']!r}, B {each['around']['b']!r}"] if "around" in each else []
    return f"{each['in']}: " + ", ".join([*sides, *facts, *around])


_NAMED = frozenset({"in", "a", "b", "choice", "around"})


def _sides(value: Any) -> str:
    if isinstance(value, dict):
        return " / ".join("none" if each is None else str(each) for each in value.values())
    return f"by {' and '.join(value).upper()}" if isinstance(value, list) else str(value)


def _unanswered(outcome: dict[str, Any]) -> str:
    if "failed" in outcome:
        return f"failed ({outcome['failed']})"
    if "status" not in outcome:
        return ""
    words = " ".join(str(outcome[name]) for name in ("status", "code", "param") if outcome[name])
    return f"rejects ({words})" + (f": {outcome['message']!r}" if "message" in outcome else "")


def _delays(delays: dict[str, Any]) -> Table:
    table = Table("of requests that both targets completed", "A p50", "A p99", "B p50", "B p99", show_edge=False)
    titles = {
        "time_to_first_token_ms": "milliseconds to the first token",
        "tokens_per_s": "tokens/s of a response",
        "whole_answer_ms": "milliseconds to the end",
    }
    for key, title in titles.items():
        values = [value for side in ("a", "b") for value in delays[side][key].values()]
        table.add_row(title, *("-" if value is None else f"{value:,.1f}" for value in values))
    return table


def _console() -> Console:
    return Console(highlight=False, file=sys.stdout)
