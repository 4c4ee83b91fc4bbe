"""Findings on the certificates of the settings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

from gateway.http.certificates import CertificateError, expiry_of
from gateway.http.listening_tls import listening_contexts
from gateway.settings import ServerSettings, TritonSettings
from gateway.settings.yaml_file import Keys
from gateway.triton.access import triton_access
from gateway_ops.check.findings import Finding, Severity, sentence

_SOON = dt.timedelta(days=14)  # well before the end of certificates that are renewed a month ahead

Located = tuple[Keys, Finding]


def check_listening(settings: ServerSettings) -> Iterator[Located]:
    """Find what prevents clients from connecting by TLS, or will soon.

    Yields:
        Key path, and finding.
    """
    tls, keys = settings.tls, ("server", "tls")
    if tls is None:
        return
    try:
        listening_contexts(tls)
    except CertificateError as error:
        yield keys, Finding(Severity.ERROR, "", sentence(f"server.tls: {error}"))
        return
    yield from _expiry((*keys, "certificate"), tls.certificate, tls.key, client=False)
    if tls.client_certificates == "required" and settings.internal_port is None:
        what = "Health checks have no client certificate, and /health requires one."
        yield (
            (*keys, "client_certificates"),
            Finding(Severity.WARNING, "", what, "Set server.internal_port for health checks."),
        )


def check_calling(settings: TritonSettings) -> Iterator[Located]:
    """Find what prevents the gateway from calling Triton by TLS, or will soon.

    Yields:
        Key path within the model, and finding.
    """
    tls, keys = settings.tls, ("triton", "tls")
    try:
        triton_access(settings)
    except CertificateError as error:
        yield keys, Finding(Severity.ERROR, "", sentence(f"triton.tls: {error}"))
        return
    if tls is not None and tls.certificate is not None and tls.key is not None:
        yield from _expiry((*keys, "certificate"), tls.certificate, tls.key, client=True)


def _expiry(keys: Keys, certificate: Path, key: Path, *, client: bool) -> Iterator[Located]:
    left = expiry_of(certificate, key, client=client) - dt.datetime.now(dt.timezone.utc)
    if left < _SOON:
        what = f"The certificate in {certificate} expires in {left.days} days."
        yield keys, Finding(Severity.WARNING, "", what, "Renew it: the gateway loads the new files automatically.")
