"""Results as Markdown for README.md, and the same as plain text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from . import renderings, store
from .peers import peer_tables
from .plots import write_plots
from .processes import ROOT

_README = ROOT / "benchmarks" / "README.md"


_MODES: dict[str, Callable[[dict[str, Any]], str]] = {
    "relay": renderings.relay,
    "memory": renderings.memory,
    "features": renderings.features,
    "requests": renderings.requests,
    "bodies": renderings.bodies,
    "embeddings": renderings.embeddings,
    "frontdoor": renderings.front_door,
    "lag": renderings.lag,
    "mirror": renderings.mirror,
    "hostile": renderings.hostile,
    "workers": renderings.workers,
    "triton": renderings.triton,
    "turns": renderings.turns,
    "knee": renderings.knee,
    "rates": renderings.rates,
    "scaling": renderings.scaling,
    "peers": peer_tables.peers,
}


def markdown(mode: str) -> str:
    """The last results of a mode, with machine, versions and command."""
    values = store.load(mode)
    if values is None:
        return ""
    about = values["about"]
    said = f"`{about['command']}`, {about['date']}, {about['machine']}, {about['load']}; {about['versions']}."
    return f"{said}\n\n{_MODES[mode](values)}"


def plain(mode: str) -> str:
    """The same for a terminal."""
    return "\n" + markdown(mode).replace("| ", "  ").replace(" |", "") + "\n"


class _Between:
    """A replacement that keeps the two marks of a match: no text of it is a pattern."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self, match: re.Match[str]) -> str:
        return f"{match[1]}\n{self._text}\n\n{match[2]}"


def write_readme() -> None:
    """Put stored results between their marks in README.md, and draw the plots."""
    text = _README.read_text()
    for mode in store.modes():
        begin, end = f"<!-- results: {mode} -->", f"<!-- end: {mode} -->"
        pattern = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
        found = markdown(mode)
        text = pattern.sub(_Between(found), text)
    _README.write_text(text)
    write_plots()
