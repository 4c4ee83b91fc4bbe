"""Texts of clients and servers in a form that logs and terminals can show."""

from __future__ import annotations

import re
from typing import Any

# Control characters except line ends and tabs, line and paragraph separators, bidirectional controls, lone surrogates.
# `str.isprintable` is false for all of them.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    r"""Escape characters that act upon a terminal, such as ``\x1b``; line ends and tabs stay."""
    if text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def harmless_json(text: str) -> str:
    r"""Escape characters that act upon a terminal in JSON text, such as ``\u009b``."""
    return text if text.isprintable() else _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def one_line(text: str) -> str:
    """Escape characters as ``harmless`` does, line ends and tabs as well."""
    return " ".join(harmless(text).split())


def harmless_values(value: Any) -> Any:
    """Escape each text in a JSON value, also of names, as ``one_line`` does."""
    if isinstance(value, dict):
        return {harmless_values(name): harmless_values(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [harmless_values(each) for each in value]
    return one_line(value) if isinstance(value, str) else value
