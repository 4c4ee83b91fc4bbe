"""Ids of calls as Anthropic's clients take them, and back: templates show the model the ids that it wrote."""

from __future__ import annotations

import base64
import binascii
import re

from gateway.ids import new_id

_PREFIX = "toolu_"
_ENCODED = "toolu_b64-"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,58}")
_SHORT = re.compile(r"toolu_([A-Za-z0-9]{9})")
_LONGEST = 64
_NEW = "call_"  # how ids begin that the gateway gives


def told(call_id: str) -> str:
    """The id of a call as the client is told it: at most 64 letters, digits, ``_`` and ``-``."""
    if _PLAIN.fullmatch(call_id):
        return _PREFIX + call_id.removeprefix(_NEW)
    encoded = _ENCODED + base64.urlsafe_b64encode(call_id.encode()).decode().rstrip("=")
    return encoded if len(encoded) <= _LONGEST else _PREFIX + new_id()


def own(tool_use_id: str) -> str:
    """The model's own id of a call from the one that the client was told; any other is as it is."""
    if short := _SHORT.fullmatch(tool_use_id):
        return short[1]
    if not tool_use_id.startswith(_ENCODED):
        return tool_use_id
    text = tool_use_id.removeprefix(_ENCODED)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode() or tool_use_id
    except (binascii.Error, ValueError):
        return tool_use_id
