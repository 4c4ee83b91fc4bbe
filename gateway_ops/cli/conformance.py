"""``gateway check URL --conformance``: checks which promises of the API a server holds."""

from __future__ import annotations

import time
from itertools import groupby

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway_ops.cli.console import Progress, echo_json, fail
from gateway_ops.conformance import suite
from gateway_ops.conformance.server_under_check import ServerUnderCheck
from gateway_ops.conformance.suite import CheckOutcome
from gateway_ops.conformance.verdicts import Verdict, shown

_STYLES = {
    Verdict.UNTRUE: "bold red",
    Verdict.UNCLEAR: "yellow",
    Verdict.NOT_OFFERED: "cyan",
    Verdict.TRUE: "green",
}


def show_conformance(
    url: str, model: str | None, api_key: str | None, timeout_s: float, *, as_json: bool, verbose: bool
) -> None:
    """Check a server and print the verdicts.

    Raises:
        typer.Exit: with status 1 where a promise is broken, or not all can be checked.
    """
    began = time.monotonic()
    try:
        with Progress() as progress:
            progress.step("Connecting to the server")
            server = suite.meet(url, model, api_key, timeout_s)
            found = _run(server, progress)
    except suite.UnsuitableServerError as error:
        raise fail(error) from None
    seconds = time.monotonic() - began
    if as_json:
        echo_json(_as_json(server, found, seconds))
    else:
        _show(server, found, seconds, verbose)
    if not _is_ok(server, found):
        raise typer.Exit(1)


def _run(server: ServerUnderCheck, progress: Progress) -> list[CheckOutcome]:
    """Run every check, and show how many have run and how long the others may take."""
    found: list[CheckOutcome] = []
    total = sum(len(group.checks) for group in suite.GROUPS)
    began = time.monotonic()

    def detail() -> str:
        if not found:
            return f"{total} checks"
        left_s = (time.monotonic() - began) / len(found) * (total - len(found))
        return f"{len(found)} of {total} checks, about {left_s:.0f} s to go"

    for outcome in suite.run(server, lambda title: progress.step(title, detail())):
        found.append(outcome)
        progress.detail(detail())
    return found


def _is_ok(server: ServerUnderCheck, outcomes: list[CheckOutcome]) -> bool:
    """Whether nothing is untrue, and the server was there to the end."""
    return not suite.counts(outcomes)[Verdict.UNTRUE] and not server.lost


def _as_json(server: ServerUnderCheck, outcomes: list[CheckOutcome], seconds: float) -> dict[str, object]:
    counted = {verdict.value: count for verdict, count in suite.counts(outcomes).items()}
    return {
        "ok": _is_ok(server, outcomes),
        "url": server.http.base,
        "model": server.model,
        "requests": server.sent,
        "seconds": round(seconds, 1),
        "counts": counted,
        "checks": [each.as_json() for each in outcomes],
    }


def _show(server: ServerUnderCheck, outcomes: list[CheckOutcome], seconds: float, verbose: bool) -> None:
    """Print what is untrue first, then the rest by verdict, each by groups; what is true by name only if wanted."""
    console = Console(highlight=False)
    for verdict in Verdict:
        chosen = [each for each in outcomes if each.verdict is verdict]
        if not chosen or (verdict is Verdict.TRUE and not verbose):
            continue
        console.print(Text(f"{verdict.value}: {len(chosen)}", _STYLES[verdict]))
        if verdict is Verdict.UNTRUE:
            _show_untrue(console, chosen)
        elif console.is_terminal:
            _show_table(console, chosen)
        else:
            for each in chosen:
                typer.echo(f"  {each.check.name}: {each.evidence or each.check.promise}")
        console.print()
    if not verbose and suite.counts(outcomes)[Verdict.TRUE]:
        typer.echo("What is true, check by check: --verbose")
    counts = ", ".join(f"{count} {verdict.value}" for verdict, count in suite.counts(outcomes).items() if count)
    typer.echo(f"{server.http.base} {shown(server.model)}: {counts}; {server.sent} requests in {seconds:.0f} s")
    if server.lost:
        typer.echo(f"Not all checks could run: {server.lost.removeprefix('not run: ')}")


def _show_untrue(console: Console, chosen: list[CheckOutcome]) -> None:
    for group, outcomes in groupby(chosen, key=lambda each: each.group):
        console.print(Text(f"  {group}", "bold"))
        for each in outcomes:
            console.print(Text(f"    {each.check.name}: ", "red") + Text(each.check.promise), soft_wrap=True)
            console.print(Text(f"      but {each.evidence}"), soft_wrap=True)
            for line in each.curl:  # not wrapped, so that it can be copied
                console.print(Text(f"      {line}", "dim"), soft_wrap=True)


def _show_table(console: Console, chosen: list[CheckOutcome]) -> None:
    table = Table("", "check", "what", show_edge=False)
    last = ""
    for each in chosen:
        what = each.evidence or each.check.promise
        table.add_row(Text("" if each.group == last else each.group), Text(each.check.name), Text(what))
        last = each.group
    console.print(table)
