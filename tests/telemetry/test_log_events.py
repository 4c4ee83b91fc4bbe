"""The log: each line is one JSON object, and each logging call has its event in the table."""

from __future__ import annotations

import ast
import functools
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.telemetry.logs import LineFormatter, RateLimitedFilter
from tools.log_events import GROUPS, Event

ROOT = Path(__file__).parents[2] / "gateway"
EVENTS: dict[str, Event] = {name: event for events in GROUPS.values() for name, event in events.items()}
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
LOGGERS = {"_log", "_LOG", "ACCESS_LOG"}


@dataclass(frozen=True)
class Call:
    """What is known of a logging call: its place, its event, its levels, and whether it gives a ``request_id``."""

    place: str
    event: str
    levels: frozenset[str]
    of_request: bool


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path, ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def calls() -> list[Call]:
    return [
        described(f"{path.relative_to(ROOT)}:{call.lineno}", call, function)
        for path, tree in trees()
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for call in own(function)
        if isinstance(call, ast.Call) and is_logging(call)
    ]


def own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions inside of it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from own(node)


def is_logging(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Name) and called.id == "log_facts":
        return True
    if not isinstance(called, ast.Attribute) or called.attr not in LEVELS:
        return False
    return isinstance(called.value, ast.Name) and called.value.id in LOGGERS


def described(place: str, call: ast.Call, function: ast.AST) -> Call:
    extra = next((each.value for each in call.keywords if each.arg == "extra"), None)
    level = call.func.attr if isinstance(call.func, ast.Attribute) else "log"
    if isinstance(call.func, ast.Name):  # log_facts
        extra = call.args[-1]
    assert extra is not None, f"{place} has no event"
    # The fields may have been gathered before the call.
    fields = next((found for found in map(named, (extra, function)) if found), [])
    assert len(fields) == 1, f"{place} has no event, or several"
    (about,) = fields
    event = next(value for key, value in zip(about.keys, about.values, strict=True) if key_of(key) == "event")
    assert isinstance(event, ast.Constant), f"{place}: the event is no constant"
    levels = chosen(function) if level == "log" else {level}
    return Call(place, str(event.value), frozenset(levels), gives_request(about, function))


def named(node: ast.AST) -> list[ast.Dict]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Dict) and "event" in map(key_of, each.keys)]


def key_of(key: ast.expr | None) -> object:
    return key.value if isinstance(key, ast.Constant) else None


def chosen(function: ast.AST) -> set[str]:
    """The levels that a function chooses from: ``logging.INFO`` and so on."""
    found = (each.attr for each in ast.walk(function) if isinstance(each, ast.Attribute))
    return {name.lower() for name in found if name in {"DEBUG", "INFO", "WARNING", "ERROR"}}


def gives_request(about: ast.Dict, function: ast.AST) -> bool:
    """Whether there is a ``request_id`` among fields, or ``**cause()``, or it is set after they were gathered."""
    keys = {key_of(key) for key in about.keys}
    spread = [ast.unparse(value) for key, value in zip(about.keys, about.values, strict=True) if key is None]
    stored = (each.slice for each in ast.walk(function) if isinstance(each, ast.Subscript))
    return "request_id" in {*keys, *map(key_of, stored)} or "cause()" in spread


def test_every_call_names_an_event_of_the_table_and_every_event_is_logged() -> None:
    assert {call.event for call in calls()} == set(EVENTS)


def test_the_table_has_the_levels_of_the_calls() -> None:
    found: dict[str, set[str]] = {}
    for call in calls():
        found.setdefault(call.event, set()).update(call.levels)
    assert found == {name: set(event.level) for name, event in EVENTS.items()}


def test_lines_that_a_request_is_the_cause_of_have_its_id() -> None:
    assert [call.place for call in calls() if call.of_request != EVENTS[call.event].of_request] == []


def test_no_other_logger_is_made() -> None:
    """Else the calls of one would be missed above."""
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"getLogger\([^)]*\)\.(?:debug|info|warning|error|exception|critical|log)\(", source)
        if "getLogger" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and "logging.getLogger(" in ast.unparse(node):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                assert isinstance(target, ast.Name), path
                assert target.id in LOGGERS, f"{path}: {target.id}"


def test_names_are_words_with_underscores_and_appear_once() -> None:
    assert [name for name in EVENTS if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)] == []
    assert len(EVENTS) == sum(map(len, GROUPS.values()))


SCRIPT = """
import logging.config
from gateway.telemetry.logs import logging_config
logging.config.dictConfig(logging_config("info"))
logging.getLogger("gateway.x").info("a %s", "message\\nwith lines", extra={"detail": "é"})
logging.getLogger("uvicorn.error").info("started", extra={"color_message": "colours"})
logging.getLogger("uvicorn.access").info("never shown")
logging.getLogger("gateway.x").debug("never shown")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("gateway.x").exception("failed")
"""


def test_json_lines() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stderr.decode().splitlines()]
    assert [line["message"] for line in lines] == ["a message\nwith lines", "started", "failed"]
    assert lines[0]["detail"] == "é"
    assert {"time", "level", "logger"} <= set(lines[0])
    assert "color_message" not in lines[1]
    assert "ZeroDivisionError" in lines[2]["exc_info"]


_ACTING = "a\x07\x1b[2J\x7f\x85\x9b31m\u2028\u2029\u202a\u202e\u2066\u2069b\tc\nd"


@pytest.mark.parametrize("text", [_ACTING, f"{_ACTING}\ud800"])
def test_no_character_of_a_line_acts_upon_a_terminal(text: str) -> None:
    record = logging.LogRecord("gateway.x", logging.WARNING, "", 1, "%s", (text,), None)
    record.__dict__[text] = {text: [text]}
    written = LineFormatter("%(message)s").format(record)
    assert written.isprintable()
    line = json.loads(written)
    assert line["message"] == text
    assert line[text] == {text: [text]}


def test_letters_of_all_languages_are_logged_as_they_are() -> None:
    text = "é\N{ZERO WIDTH JOINER}\N{LEFT-TO-RIGHT MARK}\N{NO-BREAK SPACE}文 😀"
    record = logging.LogRecord("gateway.x", logging.WARNING, "", 1, "%s", (text,), None)
    assert text in LineFormatter("%(message)s").format(record)


def test_a_collector_that_is_away_is_told_of_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    rate_limited = RateLimitedFilter("opentelemetry.")

    def passes(second: float, name: str = "opentelemetry.exporter", message: str = "Failed to export %s") -> bool:
        record = logging.LogRecord(name, logging.ERROR, "", 1, message, ("spans",), None)
        monkeypatch.setattr("gateway.telemetry.cooldown.time.monotonic", lambda: second)
        return rate_limited.filter(record)

    assert [passes(0), passes(5), passes(59), passes(60), passes(61)] == [True, False, False, True, False]
    assert passes(62, message="Queue full, dropping %s.")
    assert [passes(62, "gateway.access"), passes(62, "gateway.access")] == [True, True]
