"""The transport ``h2``: an HTTP/2 client for gRPC's streamed responses, without TLS.

A pure core (``http2_connection`` and what it is made of; no I/O, no clock) under an asyncio shell
(``asyncio_protocol``, ``channel``). Sources: RFC 9113 (HTTP/2), RFC 7541 (HPACK, by the package ``hpack``) and gRPC's
"gRPC over HTTP2".
"""

from gateway.triton.h2.channel import H2Transport

__all__ = ["H2Transport"]
