"""Every log line of the process is one JSON object."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from gateway.telemetry.logs import LineFormatter, RateLimitedFilter

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
