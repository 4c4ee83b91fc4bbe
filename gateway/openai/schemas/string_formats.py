"""Formats of strings as expressions: what guides hold an answer to, and what a finished one is held against.

``format`` is sent to no engine: theirs are wider than the standards (both let 31 February pass as a date), and an
expression is held exactly. What JSON Schema does not define as a format is an annotation (2020-12, 7.2.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_YEAR = "([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = (
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)"  # by 4, not by 100; or by 400
)
_DATE = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
# Without leap seconds: when there was one is not a matter of form (RFC 3339, 5.7).
_TIME = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?([zZ]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_DURATION = (
    "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T{0})?|T{0})"  # RFC 3339, appendix A
).format("([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)")
# Of RFC 1123, but shorter: 8 labels of 30 characters are within the 253 of all.
_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?"
_HOSTNAME = f"{_LABEL}(\\.{_LABEL}){{0,7}}"
_ATOM = "[a-zA-Z0-9!#$%'*+/=?_`{|}~-]{1,20}"
_EMAIL = f"{_ATOM}(\\.{_ATOM}){{0,2}}@{_HOSTNAME}"
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"({_OCTET}\\.){{3}}{_OCTET}"
_H16 = "[0-9a-fA-F]{1,4}"
_IPV6 = "|".join(
    [
        f"({_H16}:){{7}}{_H16}",
        f"({_H16}:){{1,7}}:",
        *(f"({_H16}:){{1,{left}}}(:{_H16}){{1,{7 - left}}}" for left in range(6, 0, -1)),
        f":(:{_H16}){{1,7}}",
        "::",
    ]
)
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_CHARACTER = "([a-zA-Z0-9._~!$&'()*+,;=@-]|%[0-9a-fA-F]{2})"  # of a segment of a path, but for the colon
_REST = f"(\\?({_CHARACTER}|[:/?])*)?(#({_CHARACTER}|[:/?])*)?"
_AUTHORITY = (
    f"//(([a-zA-Z0-9._~!$&'()*+,;=:-]|%[0-9a-fA-F]{{2}})*@)?({_HOSTNAME}|\\[({_IPV6})\\])(:[0-9]{{0,5}})?"
    f"(/({_CHARACTER}|:)*)*"
)
_SEGMENTS = f"({_CHARACTER}|:)+(/({_CHARACTER}|:)*)*"
_URI = f"[a-zA-Z][a-zA-Z0-9+.-]*:({_AUTHORITY}|/({_SEGMENTS})?|{_SEGMENTS}){_REST}"
_REFERENCE = f"({_URI}|({_AUTHORITY}|/({_SEGMENTS})?|{_CHARACTER}+(/({_CHARACTER}|:)*)*)?{_REST})"
_POINTER = "(/([^~/]|~[01])*)*"

EXPRESSIONS: Mapping[str, str] = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}[tT]{_TIME}",
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
    "ipv4": _IPV4,
    "ipv6": f"({_IPV6})",
    "uri": _URI,
    "iri": _URI,
    "uri-reference": _REFERENCE,
    "iri-reference": _REFERENCE,
    "uuid": _UUID,
    "json-pointer": _POINTER,
    "relative-json-pointer": f"(0|[1-9][0-9]{{0,8}})(#|{_POINTER})",
}
"""By the name of a format, an expression for whole strings. None is wider than its standard; some are narrower."""

# llguidance cannot tell whether there are longer ones of those that have no end.
_LONGEST = 40
LENGTHS: Mapping[str, tuple[int, int | None]] = {
    "date": (10, 10),
    "time": (9, 24),
    "date-time": (20, 35),
    "duration": (3, _LONGEST),
    "email": (3, _LONGEST),
    "idn-email": (3, _LONGEST),
    "hostname": (1, _LONGEST),
    "idn-hostname": (1, _LONGEST),
    "ipv4": (7, 15),
    "ipv6": (2, 20),
    "uri": (3, _LONGEST),
    "iri": (3, _LONGEST),
    "uri-reference": (0, _LONGEST),
    "iri-reference": (0, _LONGEST),
    "uuid": (36, 36),
    "json-pointer": (0, None),
    "relative-json-pointer": (1, _LONGEST),
}
"""By the name of a format, the length of its shortest string, and the greatest ``minLength`` that is served."""

WITHOUT = frozenset({"regex", "uri-template"})
"""Formats of JSON Schema that no expression here describes."""

# What answers are held against is as wide as the standards, where an expression above is narrower.
_WIDE_LABEL = "[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_WIDE: Mapping[str, str] = {
    "hostname": f"(?=.{{1,253}}$){_WIDE_LABEL}(\\.{_WIDE_LABEL})*",
    "email": "[^@\\s]{1,64}@[^@\\s]{1,255}",
    "idn-email": "[^@\\s]{1,64}@[^@\\s]{1,255}",
    "uri": "[a-zA-Z][a-zA-Z0-9+.-]*:([!#$&-;=?-Z\\[\\]_a-z~]|%[0-9a-fA-F]{2})*",
    "uri-reference": "([!#$&-;=?-Z\\[\\]_a-z~]|%[0-9a-fA-F]{2})*",
}
CHECKED: Mapping[str, re.Pattern[str]] = {
    name: re.compile(_WIDE.get(name, expression))
    for name, expression in EXPRESSIONS.items()
    if name not in {"idn-hostname", "iri", "iri-reference"}
}
"""Formats that finished answers are held against, as expressions for whole strings."""


def pattern_of(name: str) -> str | None:
    """The pattern of a schema that stands for a format; None where there is none."""
    expression = EXPRESSIONS.get(name)
    return None if expression is None else f"^({expression})$"
