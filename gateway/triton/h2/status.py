"""Maps HTTP/2 responses to gRPC statuses (gRPC over HTTP2; gRPC's mapping of HTTP codes)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from gateway.triton.h2.http2_frames import ErrorCode, error_name

NAMES = (
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)

_BY_HTTP = {
    "400": "INTERNAL",
    "401": "UNAUTHENTICATED",
    "403": "PERMISSION_DENIED",
    "404": "UNIMPLEMENTED",
    "429": "UNAVAILABLE",
    "502": "UNAVAILABLE",
    "503": "UNAVAILABLE",
    "504": "UNAVAILABLE",
}

_BY_RESET = {
    ErrorCode.REFUSED_STREAM: "UNAVAILABLE",
    ErrorCode.CANCEL: "CANCELLED",
    ErrorCode.ENHANCE_YOUR_CALM: "RESOURCE_EXHAUSTED",
    ErrorCode.INADEQUATE_SECURITY: "PERMISSION_DENIED",
}


class Status(NamedTuple):
    """The gRPC status of an ended request.

    Attributes:
        name: name of the status.
        text: its details.
    """

    name: str
    text: str = ""


_OK = Status("OK")


def status_of_trailers(headers: Mapping[str, str]) -> Status:
    """Read the status in the trailers of a stream."""
    number = headers.get("grpc-status")
    if number == "0" and "grpc-message" not in headers:
        return _OK
    text = decode_message(headers.get("grpc-message", ""))
    if number is None:
        return Status("UNKNOWN", "the stream ended without a gRPC status")
    if not (number.isascii() and number.isdigit()) or len(number) > 2 or int(number) >= len(NAMES):
        return Status("UNKNOWN", text)
    return Status(NAMES[int(number)], text)


def status_of_headers(headers: Mapping[str, str]) -> Status | None:
    """Say why a stream's first headers are not a gRPC response; None where they are."""
    code = headers.get(":status", "")
    if code != "200":
        return Status(_BY_HTTP.get(code, "UNKNOWN"), f"HTTP status {code[:3]!r}")
    if not headers.get("content-type", "").startswith("application/grpc"):
        return Status("UNKNOWN", "the response is not of type application/grpc")
    return None


def status_of_reset(code: int) -> Status:
    """Make the status of a stream that the server reset."""
    name = _BY_RESET.get(ErrorCode(code), "INTERNAL") if code in ErrorCode.__members__.values() else "INTERNAL"
    return Status(name, f"the server reset the stream ({error_name(code)})")


def decode_message(value: str) -> str:
    """Decode the percent-encoding of ``grpc-message``; invalid sequences stay."""
    return unquote_to_bytes(value).decode(errors="replace")


def encode_timeout(seconds: float) -> str:
    """Encode ``grpc-timeout``: at most eight digits in the finest unit that has room, never longer than given.

    A deadline that has passed already is one of a nanosecond.
    """
    for unit, factor in (("n", 1e9), ("u", 1e6), ("m", 1e3), ("S", 1.0), ("M", 1 / 60)):
        if seconds * factor < 99_999_999:
            return f"{max(1, int(seconds * factor))}{unit}"
    return "99999999H" if seconds / 3600 > 99_999_999 else f"{int(seconds / 3600)}H"
