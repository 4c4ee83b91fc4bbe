"""``gateway top``: shows the current activity of a running gateway."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from gateway.text.harmless import one_line
from gateway_ops.cli.console import echo_json, fail
from gateway_ops.cli.shared_options import LOCAL_URL, ApiKey
from gateway_ops.cli.top_display import view
from gateway_ops.top import SLOW_S

if TYPE_CHECKING:
    from gateway_ops.top.watched_gateway import WatchedGateway

_UNLIMITED = 1000  # columns where no terminal sets a limit


def top(
    url: Annotated[str, typer.Argument(help="Base URL of a gateway, or of its internal port.")] = LOCAL_URL,
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between two scrapes.")] = 2.0,
    slow: Annotated[float, typer.Option(min=0.01, max=300, help="Seconds to the first token that are slow.")] = SLOW_S,
    api_key: ApiKey = None,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and end; also without a terminal.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one interval as a JSON object.")] = False,
) -> None:
    """Watch models, endpoints, queues, tokens a second, times to the first token and rejections, until Ctrl-C."""
    from gateway_ops.chat.streamed_answer import ChatError  # noqa: PLC0415
    from gateway_ops.top.watched_gateway import WatchedGateway  # noqa: PLC0415

    console = Console(highlight=False, file=sys.stdout)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED
    try:
        watched = WatchedGateway(url, api_key, slow)
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
        echo_json({"url": watched.base, **found})
    else:
        console.print(view(watched.base, found, console.width))


def _watch(watched: WatchedGateway, console: Console, interval: float) -> None:
    """Show one interval after the other, and try an unreachable gateway again."""
    from gateway_ops.chat.streamed_answer import ChatError  # noqa: PLC0415

    begun = Text(f"{watched.base}: the first interval ends in {interval:g} s", "dim")
    with Live(begun, console=console, auto_refresh=False) as live:
        live.refresh()
        while True:
            time.sleep(interval)
            try:
                live.update(view(watched.base, watched.look(), console.width), refresh=True)
            except ChatError as error:
                live.update(Text(one_line(str(error)), "bold red"), refresh=True)
