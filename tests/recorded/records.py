"""The recorded exchanges: a file of text for each area, a section for each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.recorded.chats import CHATS
from tests.recorded.completions import COMPLETIONS
from tests.recorded.encoders import ENCODERS
from tests.recorded.exchange import Case, exchange
from tests.recorded.failures import FAILURES
from tests.recorded.forms import CALLS, FORMS
from tests.recorded.gateways import Gateways
from tests.recorded.messages import MESSAGES
from tests.recorded.responses import RESPONSES
from tests.recorded.tokens import TOKENS
from tests.recorded.web import HTTP

AREAS: Mapping[str, Sequence[Case]] = {
    "chats": CHATS,
    "forms": FORMS,
    "tools": CALLS,
    "completions": COMPLETIONS,
    "responses": RESPONSES,
    "messages": MESSAGES,
    "encoders": ENCODERS,
    "tokens_and_models": TOKENS,
    "http": HTTP,
    "failures": FAILURES,  # last: they count in the health of the models
}
_FOLDER = Path(__file__).with_name("answers")
_HEAD = "\n=== "


def recorded(area: str) -> dict[str, str]:
    """The sections of an area by the names of their cases."""
    with _path(area).open(encoding="utf-8", newline="") as file:
        sections = ("\n" + file.read()).split(_HEAD)[1:]
    found = dict(section.split("\n", 1) for section in sections)
    assert len(found) == len(sections), f"{area} has a case twice"
    return found


def record(area: str, world: Gateways) -> int:
    """Ask anew, and write what is answered over what was recorded; returns the number of cases."""
    cases = AREAS[area]
    sections = [f"=== {case.name}\n{exchange(case, world)}" for case in cases]
    with _path(area).open("w", encoding="utf-8", newline="") as file:
        file.write("\n".join(sections))
    return len(cases)


def _path(area: str) -> Path:
    return _FOLDER / f"{area}.txt"
