"""HTTP/2 frames, settings and error codes on the wire (RFC 9113, sections 4, 5.4, 6 and 7)."""

from __future__ import annotations

import struct
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA = 0
HEADERS = 1
PRIORITY = 2
RST_STREAM = 3
SETTINGS = 4
PUSH_PROMISE = 5
PING = 6
GOAWAY = 7
WINDOW_UPDATE = 8
CONTINUATION = 9

ACK = 0x1
END_STREAM = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITIZED = 0x20

HEADER_BYTES = 9
MAX_FRAME_BYTES = 16_384  # what every peer takes; also what this client takes
DEFAULT_WINDOW = 65_535
MAX_WINDOW = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1

# The length has 24 bits: read as its upper 16 and its lower 8.
HEAD = struct.Struct(">HBBBI")
# A frame's head together with the head of a gRPC message at the start of its payload: compressed flag and length.
HEAD_AND_MESSAGE = struct.Struct(">HBBBIBI")
MESSAGE = struct.Struct(">BI")
_U32 = struct.Struct(">I")
_SETTING = struct.Struct(">HI")


class ErrorCode(IntEnum):
    """Error codes of RST_STREAM and GOAWAY (RFC 9113, section 7)."""

    NO_ERROR = 0x0
    PROTOCOL_ERROR = 0x1
    INTERNAL_ERROR = 0x2
    FLOW_CONTROL_ERROR = 0x3
    SETTINGS_TIMEOUT = 0x4
    STREAM_CLOSED = 0x5
    FRAME_SIZE_ERROR = 0x6
    REFUSED_STREAM = 0x7
    CANCEL = 0x8
    COMPRESSION_ERROR = 0x9
    CONNECT_ERROR = 0xA
    ENHANCE_YOUR_CALM = 0xB
    INADEQUATE_SECURITY = 0xC
    HTTP_1_1_REQUIRED = 0xD


def error_name(code: int) -> str:
    """The name of an error code; the number of an unknown one."""
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code:#x}"


class Setting(IntEnum):
    """Identifiers of settings (RFC 9113, section 6.5.2)."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


# What a server may set, and the error that anything else is.
_BOUNDS = {
    Setting.ENABLE_PUSH: (0, 0, ErrorCode.PROTOCOL_ERROR),  # a server must not say that it takes pushes
    Setting.INITIAL_WINDOW_SIZE: (0, MAX_WINDOW, ErrorCode.FLOW_CONTROL_ERROR),
    Setting.MAX_FRAME_SIZE: (MAX_FRAME_BYTES, 2**24 - 1, ErrorCode.PROTOCOL_ERROR),
}


class ConnectionFailure(Exception):  # noqa: N818 - the failure of a connection, as RFC 9113 has "connection error"
    """A connection error, after which the connection cannot be used.

    Attributes:
        code: error code for GOAWAY.
        reason: the fault in words.
    """

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class StreamFailure(Exception):  # noqa: N818
    """A stream error, which ends one stream.

    Attributes:
        code: error code for RST_STREAM.
        status: name of the gRPC status of the request.
        reason: the fault in words.
        unserved: whether the server is right, and this client lacks the feature.
    """

    def __init__(self, code: ErrorCode, status: str, reason: str, *, unserved: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.status = status
        self.reason = reason
        self.unserved = unserved


def head(kind: int, flags: int, stream_id: int, length: int) -> bytes:
    """Make the nine octets before a payload of ``length`` octets."""
    return HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """Make a whole frame."""
    return head(kind, flags, stream_id, len(payload)) + payload


def window_update(stream_id: int, increment: int) -> bytes:
    """Make a WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream_id, _U32.pack(increment))


def rst_stream(stream_id: int, code: ErrorCode) -> bytes:
    """Make a RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream_id, _U32.pack(code))


def goaway(code: ErrorCode, reason: str = "") -> bytes:
    """Make a GOAWAY frame of a client that has processed no stream of the server's."""
    return frame(GOAWAY, 0, 0, _U32.pack(0) + _U32.pack(code) + reason.encode()[:200])


def settings(values: dict[Setting, int]) -> bytes:
    """Make a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def parse_settings(payload: bytes) -> list[tuple[Setting, int]]:
    """Parse a SETTINGS frame; unknown settings are left out, as the RFC demands.

    Raises:
        ConnectionFailure: the frame's size or a value breaks the protocol.
    """
    if len(payload) % _SETTING.size:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a SETTINGS frame of a wrong size")
    known = []
    for key, value in _SETTING.iter_unpack(payload):
        if key not in Setting.__members__.values():
            continue
        setting = Setting(key)
        least, most, code = _BOUNDS.get(setting, (0, 2**32 - 1, ErrorCode.PROTOCOL_ERROR))
        if not least <= value <= most:
            raise ConnectionFailure(code, f"the setting {setting.name} of {value}")
        known.append((setting, value))
    return known


def u32(payload: bytes, offset: int = 0) -> int:
    """Read an unsigned 32-bit number."""
    return int(_U32.unpack_from(payload, offset)[0])


def u31(payload: bytes, offset: int = 0) -> int:
    """Read a 31-bit number behind a reserved bit."""
    return u32(payload, offset) & MAX_WINDOW


def without_padding(payload: bytes, flags: int) -> bytes:
    """Remove the padding from the payload of a DATA or HEADERS frame.

    Raises:
        ConnectionFailure: there is more padding than payload.
    """
    if not flags & PADDED:
        return payload
    if not payload:
        raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without the length of its padding")
    if payload[0] >= len(payload):
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a frame with more padding than payload")
    return payload[1 : len(payload) - payload[0]]
