"""One row of the table of parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.generation.engine import Capability

Endpoint = Literal["chat", "completions"]
Class = Literal["engine", "annotation", "impossible"]
Source = Literal["OpenAI", "extension"]

BOTH: tuple[Endpoint, ...] = ("chat", "completions")
CHAT: tuple[Endpoint, ...] = ("chat",)
COMPLETIONS: tuple[Endpoint, ...] = ("completions",)

_ANY_EMPTY: tuple[Any, ...] = ([], {})


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known of a request parameter.

    Attributes:
        name: as requests write it; ``stream_options.include_usage`` for a field of an object.
        kind: ``engine``: it shapes the answer, by the engine or by the gateway around it; ``annotation``: it says
            something about the request and has no effect by nature; ``impossible``: no engine here can serve it.
        type: its type and range, for readers.
        does: what it does, in a sentence without its subject.
        endpoints: where it means this.
        source: OpenAI's own, or an extension that other servers have too.
        neutral: values that change nothing and are accepted always, besides null.
        empty_is_neutral: whether an empty array or object changes nothing.
        how: how it is served where the engine says nothing of its own.
        asks_engine: whether the engine's capability map decides.
        hint: whether an answer without it is as true to the request: a wish for the model's manner, or for the way that
            the request takes. Where it cannot be served, the policy for hints decides.
        openai: where this differs from OpenAI's own server, and why; or what that does where it is no parameter of it.
    """

    name: str
    kind: Class
    type: str
    does: str
    endpoints: tuple[Endpoint, ...] = BOTH
    source: Source = "OpenAI"
    neutral: tuple[Any, ...] = ()
    empty_is_neutral: bool = False
    how: Capability = field(default_factory=lambda: Capability("native", "by the engine"))
    asks_engine: bool = False
    hint: bool = False
    openai: str = ""

    def is_neutral(self, value: Any) -> bool:
        """Whether the value changes nothing, so that serving without the parameter is true to the request."""
        if value is None or (self.empty_is_neutral and value in _ANY_EMPTY):
            return True
        return any(_same(value, neutral) for neutral in self.neutral)

    @property
    def neutral_text(self) -> str:
        """The neutral values as JSON, for readers."""
        values = [json.dumps(value) for value in self.neutral]
        if self.empty_is_neutral:
            values.append("{}" if "object" in self.type else "[]")
        return ", ".join(values)


def _same(value: Any, neutral: Any) -> bool:
    """JSON equality: 0 and 0.0 are one number, 1 and true are not."""
    if isinstance(value, bool) or isinstance(neutral, bool):
        return value is neutral
    return bool(value == neutral)
