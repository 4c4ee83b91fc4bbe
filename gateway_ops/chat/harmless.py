"""Words of others, as they can be shown on a terminal."""

from __future__ import annotations

import re

# Control characters but line ends and tabs, what turns the direction of writing around, halves of surrogate pairs.
_ACTS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    r"""A text in which what a terminal would act upon is shown, such as ``\x1b``; line ends and tabs stay."""
    return _ACTS.sub(lambda found: ascii(found[0])[1:-1], text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """The same without line ends and tabs."""
    return " ".join(harmless(text).split())
