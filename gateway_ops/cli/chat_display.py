"""Shows answers of ``gateway chat`` on a terminal as they come."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from rich.console import Console
from rich.status import Status
from rich.text import Text

from gateway.text.harmless import harmless, one_line
from gateway_ops.chat.streamed_answer import ReplyDelta, StreamedReply

_TINTS = ((0.9, "green", "90 % and more"), (0.5, "cyan", "50 %"), (0.1, "yellow", "10 %"), (0.0, "red", "less"))
_ENDINGS = {"length": "cut off at the token limit", "content_filter": "cut off by a filter"}


class ChatDisplay:
    """Shows answers.

    Args:
        console: the terminal.
        tint: whether tokens are coloured by their probability.
    """

    def __init__(self, console: Console, *, tint: bool) -> None:
        self._console = console
        self._tint = tint
        self._status: Status | None = None
        self._thinking = False
        self._open = False  # whether a line has begun

    def legend(self) -> None:
        """Show the meaning of the colours."""
        words = Text("probability of a token: ", "dim")
        for _, style, label in _TINTS:
            words.append(f"{label}  ", style)
        self._console.print(words)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Show a wait until the first piece comes."""
        self._status = Status("", console=self._console) if self._console.is_terminal else None
        try:
            if self._status is not None:
                self._status.start()
            yield
        finally:
            self._came()

    def piece(self, piece: ReplyDelta) -> None:
        """Show a piece of an answer."""
        self._came()
        if piece.reasoning:
            self._thinking = True
            self._out(piece.reasoning, "dim")
        if not piece.text:
            return
        if self._thinking:
            self.end()
        if self._tint and piece.tokens:
            for token, logprob in piece.tokens:
                self._out(token, _style(logprob))
        else:
            self._out(piece.text)

    def end(self) -> None:
        """End the line, if one has begun."""
        self._thinking = False
        if self._open:
            self._console.out("")
            self._open = False

    def call(self, name: str, arguments: str) -> None:
        """Show a tool call."""
        self._console.print(Text(f"{name} {harmless(arguments)}", "cyan"), soft_wrap=True)

    def error(self, message: str) -> None:
        """Show an error."""
        self._console.print(Text(one_line(message), "red"), soft_wrap=True)

    def summary(self, answer: StreamedReply) -> None:
        """Show the tokens and times of an answer."""
        self._console.print(Text(harmless("; ".join(self._facts(answer))), "dim"), soft_wrap=True)

    def _facts(self, answer: StreamedReply) -> Iterator[str]:
        if answer.finish_reason in _ENDINGS:
            yield _ENDINGS[answer.finish_reason]
        prompt, completion = answer.count("prompt_tokens"), answer.count("completion_tokens")
        if prompt is None or completion is None:
            yield f"the server reports no usage ({answer.events} events)"
        else:
            yield f"{prompt} tokens in, {completion} out"
        if answer.first_s is not None:
            yield f"first after {answer.first_s:.2f} s"
        if answer.tokens_per_s is not None:
            yield f"{answer.tokens_per_s:,.1f} tokens/s"
        if self._tint:
            yield _least_likely(answer)

    def _out(self, text: str, style: str | None = None) -> None:
        shown = harmless(text)
        self._console.out(shown, style=style, end="", highlight=False)
        self._open = not shown.endswith("\n")

    def _came(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _style(logprob: float) -> str:
    probability = math.exp(min(logprob, 0.0))
    return next(style for least, style, _ in _TINTS if probability >= least)


def _least_likely(answer: StreamedReply) -> str:
    known = [(entry.get("logprob"), entry.get("token")) for entry in answer.logprobs]
    numbers = [(value, str(token)) for value, token in known if isinstance(value, float | int) and math.isfinite(value)]
    if not numbers:
        return "the server reports no log-probs"
    logprob, token = min(numbers)
    return f"least likely {token!r} ({math.exp(min(logprob, 0.0)):.1%})"
