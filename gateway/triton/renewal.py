"""Renews connections to Triton when certificates change."""

from __future__ import annotations

import asyncio
import logging

from gateway.http.certificates import FileBackedValue
from gateway.triton.access import Credentials
from gateway.triton.renewable_channel import RenewableChannel
from gateway.triton.transport import RenewableTransport

_LOG = logging.getLogger(__name__)
_RETRY_S = 5.0


async def follow_certificates(
    tls: FileBackedValue[Credentials], channel: RenewableChannel, transport: RenewableTransport, url: str
) -> None:
    """Connect again each time that the certificates change, until cancelled.

    Requests in flight stay where they are. A server that does not accept the new certificates is tried again and again;
    until then the former connections serve.

    Args:
        tls: the certificates.
        channel: channel of small calls, and of requests by grpcio.
        transport: transport of requests.
        url: address of the server, for the log.
    """
    changed = asyncio.Event()
    tls.on_change.append(changed.set)
    try:
        while True:
            await changed.wait()
            changed.clear()
            trouble = await channel.renew() or await transport.renew()
            if trouble is None:
                _LOG.info(
                    "connected with the new certificates", extra={"event": "triton_certificates_used", "triton": url}
                )
                continue
            _LOG.warning(
                "not connected with the new certificates, trying again: %s",
                trouble,
                extra={"event": "triton_certificates_unused", "triton": url},
            )
            asyncio.get_running_loop().call_later(_RETRY_S, changed.set)
    finally:
        tls.on_change.remove(changed.set)
