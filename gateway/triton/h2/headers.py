"""Header blocks in both directions, compressed by HPACK (RFC 9113, section 4.3; RFC 7541)."""

from __future__ import annotations

from collections.abc import Sequence

from hpack import Decoder, Encoder, HPACKError

from gateway.text.bounded_dict import BoundedDict
from gateway.triton.h2 import http2_frames as frames
from gateway.triton.h2.http2_frames import ConnectionFailure, ErrorCode
from gateway.triton.h2.limits import Limits
from gateway.triton.h2.status import encode_timeout

_USER_AGENT = "triton-openai-gateway"
_TABLE_BYTES = 4_096
_KNOWN_BLOCKS = 64
_TIMEOUT = b"\x10\x0cgrpc-timeout"  # never indexed, with its name in full (RFC 7541, 6.2.3); its value follows
_WHOLE = frames.END_HEADERS | frames.END_STREAM


class RequestHeaders:
    """Encodes the headers of requests, which mostly differ only in the deadline.

    Args:
        authority: ``host:port``.
        scheme: ``https`` with TLS.
        metadata: further headers of each request.
    """

    def __init__(self, authority: str, scheme: str = "http", metadata: Sequence[tuple[str, str]] = ()) -> None:
        self._encoder = Encoder()
        self._common = (
            (":method", "POST"),
            (":scheme", scheme),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", _USER_AGENT),
            ("grpc-accept-encoding", "identity"),
            *metadata,
        )
        self._path = ""
        self._block = b""  # for that path
        self._sizes: tuple[int, int] | None = None  # the smallest since the last block, and the last

    def resize_table(self, octets: int) -> None:
        """Apply the server's limit for the table of known headers."""
        octets = min(octets, _TABLE_BYTES)
        smallest = self._sizes[0] if self._sizes else self._encoder.header_table_size
        self._sizes = (min(smallest, octets), octets)

    def encode(self, path: str, timeout: float | None, traceparent: str | None = None) -> bytes:
        """Encode the header block of a request, far smaller than any frame."""
        if self._sizes is not None:
            for size in self._sizes:
                if size != self._encoder.header_table_size:  # else hpack forgets to tell of the change before
                    self._encoder.header_table_size = size
            self._sizes, self._block = None, b""
        if path != self._path:
            self._path, self._block = path, b""
        block = self._block
        if not block:
            block = self._encoder.encode(((":path", path), *self._common))
            # Once all fields are references to the table (each octet has its upper bit set), the block leaves the table
            # as it is and is the same from then on: the deadline is never indexed.
            if min(block) >= 0x80:
                self._block = block
        if timeout is not None:
            value = encode_timeout(timeout).encode()
            block += _TIMEOUT + bytes((len(value),)) + value
        if traceparent is not None:
            block += self._encoder.add((b"traceparent", traceparent.encode()), sensitive=True)
        return block


class HeaderBlocks:
    """Collects and decodes the server's header blocks.

    Attributes:
        stream_id: the stream with an unfinished block; 0 for none.
        end_stream: whether the block is the last of its stream.
    """

    def __init__(self, limits: Limits) -> None:
        self._decoder = Decoder(max_header_list_size=limits.header_list)
        self._limits = limits
        self._parts: list[bytes] = []
        self._octets = 0
        self._known = BoundedDict[bytes, dict[str, str]](_KNOWN_BLOCKS)
        self.stream_id = 0
        self.end_stream = False

    def begin(self, stream_id: int, payload: bytes, flags: int) -> dict[str, str] | None:
        """Add the payload of a HEADERS frame; returns the headers when they are complete.

        Raises:
            ConnectionFailure: it cannot be understood, or is beyond the limits.
        """
        if flags & ~_WHOLE == 0 and flags & frames.END_HEADERS and (known := self._known.get(payload)) is not None:
            self.end_stream = bool(flags & frames.END_STREAM)
            return known
        payload = frames.without_padding(payload, flags)
        if flags & frames.PRIORITIZED:
            if len(payload) < 5:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a HEADERS frame without its priority")
            payload = payload[5:]
        self.stream_id = stream_id
        self.end_stream = bool(flags & frames.END_STREAM)
        return self.go_on(payload, flags)

    def go_on(self, payload: bytes, flags: int) -> dict[str, str] | None:
        """Add the payload of a CONTINUATION frame; returns the headers when they are complete.

        Raises:
            ConnectionFailure: it cannot be understood, or is beyond the limits.
        """
        self._parts.append(payload)
        self._octets += len(payload)
        if self._octets > self._limits.header_block or len(self._parts) > self._limits.continuations + 1:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "a header block beyond the limits")
        if not flags & frames.END_HEADERS:
            return None
        block = b"".join(self._parts)
        self._parts, self._octets, self.stream_id = [], 0, 0
        headers = self._known.get(block)
        return self._decode(block) if headers is None else headers

    def _decode(self, block: bytes) -> dict[str, str]:
        try:
            fields = self._decoder.decode(block, raw=True)
        except (HPACKError, IndexError) as error:  # IndexError: hpack at the end of some truncated blocks
            raise ConnectionFailure(ErrorCode.COMPRESSION_ERROR, f"a header block: {type(error).__name__}") from None
        headers: dict[str, str] = {}
        for name, value in fields:
            headers.setdefault(bytes(name).decode("latin-1"), bytes(value).decode("utf-8", "replace"))
        # References to the table only (each octet has its upper bit set) leave it as it is, and mean the same until
        # a block comes that may change it.
        if not block or min(block) < 0x80:
            self._known.clear()
        else:
            self._known[block] = headers
        return headers
