"""The display of ``gateway bench``: a live view, then a summary."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gateway_ops.cli.console import fail

if TYPE_CHECKING:
    from gateway_ops.bench.load import Load

_REFRESH_S = 0.5
_TIMES = (
    ("first token", "time_to_first_token_ms"),
    ("between tokens", "inter_token_ms"),
    ("whole answer", "end_to_end_ms"),
)


async def watch(load: Load, running: asyncio.Task[None]) -> None:
    """Wait for a load, and show how it goes where standard error is a terminal.

    Args:
        load: that runs.
        running: its task.
    """
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


def _view(load: Load, tokens_s: float) -> Table:
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


def tell(found: dict[str, Any], *, as_json: bool, output: Path | None) -> None:
    """Print a summary, and write it to a file where one is given.

    Args:
        found: the summary.
        as_json: whether it is printed as JSON.
        output: the file.
    """
    text = json.dumps(found, indent=2)
    if output is not None:
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise fail(f"cannot write {output}: {error.strerror}") from None
    if as_json:
        typer.echo(text)
        return
    _show(found)


def _show(found: dict[str, Any]) -> None:
    console = Console(highlight=False, file=sys.stdout)
    done = found["requests"]
    console.print(f"{found['model']} at {found['url']}, {found['seconds']:.1f} s")
    table = Table("milliseconds", *(name for name in found["end_to_end_ms"]), show_edge=False)
    for title, key in _TIMES:
        table.add_row(title, *(_number(value, ",.1f") for value in found[key].values()))
    console.print(table)
    tokens = found["tokens"]
    console.print(f"{done['completed']} of {done['sent']} requests, {_number(found['requests_per_s'], '.2f')}/s")
    rate = _number(found["completion_tokens_per_s"], ",.0f")
    console.print(f"{_number(tokens['completion'], ',')} tokens, {rate}/s")
    console.print(f"{_number(tokens['prompt'], ',')} tokens in prompts")
    for kind, count in done["failed"].items():
        console.print(f"failed: {count} x {kind}", style="red", markup=False)
    if done["not_sent"]:
        console.print(f"not sent, too many in flight: {done['not_sent']}", style="red")
