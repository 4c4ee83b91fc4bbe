"""Output of commands while they work: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import time
from types import TracebackType

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from gateway.text.harmless import harmless, harmless_json

ERROR_MARK = "error: "


class Progress:
    """Progress on standard error: each step and its duration. A context manager."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._status: Status | None = Status("", console=console) if console.is_terminal else None
        self._console = console
        self._step = ""
        self._began = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._status is not None:
            self._status.stop()

    def step(self, text: str, detail: str = "") -> None:
        """Begin the next step and end the one before; the detail is shown as long as the step runs."""
        if self._status is None:
            echo(f"{text} ({detail})" if detail else text, err=True)
            return
        self._finish_step()
        self._step, self._began = text, time.monotonic()
        self.detail(detail)
        self._status.start()

    def detail(self, text: str) -> None:
        """Show the progress of the step on a terminal."""
        if self._status is not None:
            self._status.update(f"{escape(self._step)} ... {escape(text)}".rstrip())

    def close(self) -> None:
        """End the last step."""
        if self._status is not None:
            self._finish_step()
            self._status.stop()

    def _finish_step(self) -> None:
        if self._step:
            took = time.monotonic() - self._began
            self._console.print(f"[green]done[/green] {escape(self._step)} [dim]({took:.1f} s)[/dim]")
            self._step = ""


def echo(text: str, *, err: bool = False) -> None:
    """Print text of clients, servers or logs with control characters escaped."""
    typer.echo(harmless(text), err=err)


def echo_json(value: object) -> None:
    """Print a JSON value with control characters escaped."""
    typer.echo(harmless_json(json.dumps(value, indent=2, ensure_ascii=False)))


def fail(message: object, status: int = 1) -> typer.Exit:
    """Print an error.

    Args:
        message: one sentence for the user, perhaps with lines of a log below it.
        status: exit status of the command.

    Returns:
        The exception that ends the command; to be raised.
    """
    echo(f"{ERROR_MARK}{message}", err=True)
    return typer.Exit(status)
