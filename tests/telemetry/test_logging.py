"""Every log line of the process is one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys

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
