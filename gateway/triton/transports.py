"""Chooses the transport of a model's requests: by setting, or by what the server supports."""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Mapping
from typing import Literal

import grpc
from tritonclient.grpc import service_pb2

from gateway.generation.engine import EngineError
from gateway.triton.access import PLAIN, TritonAccess
from gateway.triton.grpcio import GrpcioTransport
from gateway.triton.h2 import H2Transport
from gateway.triton.transport import InferCall, RenewableTransport
from gateway.triton.triton_client import DEADLINE_S, TritonClient

_LOG = logging.getLogger(__name__)

TransportName = Literal["auto", "grpcio", "h2"]


def make_transport(
    name: TransportName, url: str, channel: grpc.aio.Channel, access: TritonAccess = PLAIN
) -> RenewableTransport:
    """Make a transport by its name.

    Args:
        name: name of the transport; ``auto`` is h2 wherever that reaches the server as well as grpcio does.
        url: Triton's gRPC address, ``host:port``.
        channel: channel to that address; ``grpcio`` uses it, and leaves it open.
        access: access to the Triton.
    """
    if name == "h2":
        return H2Transport(url, access=access)
    if name == "grpcio":
        return GrpcioTransport(channel)
    reason = not_for_h2(url, os.environ)
    if reason is None:
        return AutoTransport(url, channel, access)
    _log("grpcio", url, reason)
    return GrpcioTransport(channel)


class AutoTransport:
    """Carries requests over h2, or over grpcio where h2 does not reach the server or lacks a feature.

    The choice is made by asking the server whether it lives, by both: grpcio carries the requests where grpcio gets
    an answer and h2 gets none. The choice is made again after an outage of the server.

    Args:
        url: Triton's gRPC address, ``host:port``.
        channel: channel to that address.
        access: access to the Triton.
    """

    def __init__(self, url: str, channel: grpc.aio.Channel, access: TritonAccess = PLAIN) -> None:
        self._url = url
        self._client = TritonClient(channel)
        self._grpcio = GrpcioTransport(channel)
        self._h2 = H2Transport(url, access=access)
        self._h2.reject = self._reject
        self._chosen: GrpcioTransport | H2Transport = self._h2
        self._rejected = False  # a fault in answers, which a probe does not show

    @property
    def name(self) -> str:
        """The transport that carries requests now."""
        return self._chosen.name

    def infer(
        self, request: service_pb2.ModelInferRequest, *, timeout: float, traceparent: str | None = None
    ) -> InferCall:
        """Start a request; see ``Transport``."""
        return self._chosen.infer(request, timeout=timeout, traceparent=traceparent)

    async def prepare(self) -> None:
        """Choose the transport; see ``Transport``."""
        try:
            await self._client.server_live()
        except EngineError:
            self._rejected = False  # another server may come
            raise
        if self._rejected:
            return
        reason = await self._h2.probe(DEADLINE_S)
        if reason is not None:
            await self._client.server_live()  # the server may have gone in between
            reason = await self._h2.probe(DEADLINE_S)
        if reason is not None:
            self._fall_back(reason)
        elif self._chosen is not self._h2:
            self._chosen = self._h2
            _log("h2", self._url, "the server supports it")

    async def renew(self) -> str | None:
        """Connect again, where h2 is chosen; see ``RenewableTransport``."""
        return await self._chosen.renew()

    async def close(self) -> None:
        """Close h2's connection; see ``Transport``."""
        await self._h2.close()

    def _reject(self, reason: str) -> None:
        self._rejected = True
        self._fall_back(reason)

    def _fall_back(self, reason: str) -> None:
        if self._chosen is not self._grpcio:
            self._chosen = self._grpcio
            _log("grpcio", self._url, reason)


def not_for_h2(url: str, environment: Mapping[str, str]) -> str | None:
    """Say why only grpcio can reach an address; None where h2 can, too.

    Args:
        url: the address, as grpcio takes it.
        environment: environment with the proxies that grpcio reads.
    """
    host, _, port = url.removeprefix("grpc://").rpartition(":")
    if not port.isdigit() or "/" in host or (":" in host and not host.startswith("[")):
        return f"{url} must be host:port"
    proxies = (environment.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy"))
    if any(proxies) and not _is_exempt(host.strip("[]"), environment):
        return "the environment names a proxy"
    if environment.get("GRPC_ADDRESS_HTTP_PROXY"):
        return "the environment names a proxy for addresses"
    return None


def _is_exempt(host: str, environment: Mapping[str, str]) -> bool:
    """Whether the environment says that a host needs no proxy. Versions of gRPC differ about endings without a dot."""
    for entry in (environment.get("no_grpc_proxy") or environment.get("no_proxy") or "").split(","):
        name = entry.strip()
        if name and (name == host or (name.startswith(".") and host.endswith(name))):
            return True
        try:
            if "/" in name and ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:
            continue
    return False


def _log(name: str, url: str, reason: str) -> None:
    _LOG.warning(
        "requests use the transport %s: %s",
        name,
        reason,
        extra={"event": "transport_chosen", "triton": url, "transport": name},
    )
