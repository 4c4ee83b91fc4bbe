"""The plain form of what a chat template has no place for: calls, results and names as text of the message.

docs/tools.md describes it to users. Calls are written as guided ones are answered (``families.schemas``), so that a
model without a call format of its own sees its earlier calls as it wrote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


def calls_text(calls: Iterable[Mapping[str, Any]]) -> str:
    """Calls as one JSON array of names and arguments; the arguments as they were written."""
    functions = [(call["function"]["name"], call["function"]["arguments"].strip() or "{}") for call in calls]
    texts = [
        f'{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}' for name, arguments in functions
    ]
    return f"[{', '.join(texts)}]"


def result_text(name: str, text: str) -> str:
    """The result of a call, behind the name of its function."""
    return f"Result of {name}:\n{text}"


def named_text(name: str, text: str) -> str:
    """The text of a message, behind the name of its author."""
    return f"{name}: {text}"
