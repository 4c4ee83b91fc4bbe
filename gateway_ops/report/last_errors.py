"""The last errors of a gateway's log, without fields that may have prompts or clients' annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MOST_BYTES = 2**22  # of the end of a log
_MOST_RECORDS = 50
_LONGEST = 500
_KEPT = (
    "time", "level", "logger", "message", "method", "status", "duration_s", "ttft_s", "model", "prompt_tokens",
    "completion_tokens", "finish_reason", "error", "disconnected", "transport",
)  # fmt: skip
_FRAME = '  File "'


def last_errors(log: Path) -> list[dict[str, Any]]:
    """Read the last records above the level INFO, and of failed requests, oldest first.

    Raises:
        OSError: the log cannot be read.
    """
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_BYTES))
        lines = file.read(_MOST_BYTES).splitlines()
    found = [record for record in map(_read, lines) if record and _is_error(record)]
    return [_shown(record) for record in found[-_MOST_RECORDS:]]


def _read(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _is_error(record: dict[str, Any]) -> bool:
    return record.get("level") not in {"INFO", "DEBUG"} or "error" in record


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    kept = {name: _short(record[name]) for name in _KEPT if name in record}
    if isinstance(kept.get("message"), str):  # further lines are asyncio's, and quote exceptions
        kept["message"] = kept["message"].partition("\n")[0]
    left_out = sorted(str(name) for name in record if name not in kept)
    frames = list(_frames(str(record.get("exc_info", ""))))
    return kept | ({"frames": frames} if frames else {}) | ({"left_out": left_out} if left_out else {})


def _short(value: Any) -> Any:
    return value[:_LONGEST] if isinstance(value, str) else value if isinstance(value, bool | int | float) else None


def _frames(trace: str) -> Iterator[str]:
    """The file and line of each frame of a traceback, without the message, which may quote a client."""
    for line in trace.splitlines():
        if line.startswith(_FRAME):
            path, _, rest = line.removeprefix(_FRAME).partition('"')
            yield f"{'/'.join(Path(path).parts[-3:])}{rest}"
