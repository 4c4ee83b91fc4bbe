"""Access to one Triton: TLS and the headers of each call."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, replace

import grpc

from gateway.http.certificates import (
    CertificateError,
    CertificateFiles,
    CertificateWatch,
    FileBackedValue,
    expiry_of,
    load_authorities,
    load_pair,
)
from gateway.settings import ConfigError, TritonSettings
from gateway.settings.tls_settings import TritonTlsSettings

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The same certificates in the form of each library that connects.

    Attributes:
        h2: TLS context for HTTP/2, the only protocol that it negotiates.
        http: TLS context for Triton's metrics.
        grpcio: credentials of channels, which are fixed when a channel is opened.
        shows_certificate: whether the gateway has a client certificate.
    """

    h2: ssl.SSLContext
    http: ssl.SSLContext
    grpcio: grpc.ChannelCredentials
    shows_certificate: bool


@dataclass(frozen=True, slots=True)
class TritonAccess:
    """TLS and headers of connections to one Triton.

    Attributes:
        tls: client certificate and trusted authorities; None for plain connections.
        server_name: the name that Triton's certificate must have; None takes the host.
        metadata: names and values of headers.
    """

    tls: FileBackedValue[Credentials] | None = None
    server_name: str | None = None
    metadata: Metadata = ()


PLAIN = TritonAccess()


def triton_access(settings: TritonSettings) -> TritonAccess:
    """Make the access to a Triton from its settings.

    Raises:
        CertificateError: files cannot be used.
    """
    if settings.tls is None:
        return TritonAccess(metadata=_metadata(settings))
    files = CertificateFiles(settings.tls.certificate, settings.tls.key, settings.tls.ca)
    tls = FileBackedValue(files, lambda: _credentials(files), "triton.tls")
    return TritonAccess(tls, settings.tls.server_name, _metadata(settings))


class TritonAccesses:
    """The access to the Tritons of all served models, with certificates that follow their files.

    Args:
        certificates: follows the files.
    """

    def __init__(self, certificates: CertificateWatch) -> None:
        self._certificates = certificates
        self._tls: dict[tuple[str, TritonTlsSettings | None], TritonAccess] = {}

    def of(self, model: str, settings: TritonSettings) -> TritonAccess:
        """Return the access to the Triton of a model.

        Raises:
            ConfigError: certificates cannot be used.
        """
        key = model, settings.tls
        if key not in self._tls:
            try:
                self._tls[key] = triton_access(settings)
            except CertificateError as error:
                raise ConfigError(f"model {model}: triton.tls: {error}.") from None
        known = self._tls[key]
        if known.tls is not None:
            self._certificates.follow(known.tls)
        return replace(known, metadata=_metadata(settings))


def _metadata(settings: TritonSettings) -> Metadata:
    return tuple((name, value.get_secret_value()) for name, value in settings.metadata.items())


def _credentials(files: CertificateFiles) -> Credentials:
    """Read the files.

    Raises:
        CertificateError: they cannot be used.
    """
    if files.certificate is not None and files.key is not None:
        expiry_of(files.certificate, files.key, client=True)
    h2, http = _context(files), _context(files)
    h2.set_alpn_protocols(["h2"])
    try:
        root, key, chain = (
            path.read_bytes() if path is not None else None
            for path in (files.authorities, files.key, files.certificate)
        )
    except OSError as error:
        raise CertificateError(f"{error.filename} cannot be read ({error.strerror})") from None
    return Credentials(h2, http, grpc.ssl_channel_credentials(root, key, chain), chain is not None)


def _context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.authorities is None:
        context.load_default_certs()
    else:
        load_authorities(context, files.authorities)
    if files.certificate is not None and files.key is not None:
        load_pair(context, files.certificate, files.key)
    return context
