"""A certificate and its key, verified as the other side of a connection will."""

from __future__ import annotations

import datetime as dt
import re
import ssl
from pathlib import Path

from gateway.certificates.files import CertificateError, read_pem

_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_STEPS = 10  # more turns than any handshake takes
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_NOT_YET = 9  # X509_V_ERR_CERT_NOT_YET_VALID
_PURPOSE = 26  # X509_V_ERR_INVALID_PURPOSE


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """Have a context show a certificate.

    Raises:
        CertificateError: the files are not a certificate and its key.
    """
    _leaf(certificate)
    read_pem(key)
    try:
        # Without a password at hand OpenSSL would ask the terminal for it.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedError:
        raise CertificateError(f"the key in {key} is encrypted: it must be readable without a password") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateError(f"the key in {key} is not that of the certificate in {certificate}") from None
        raise CertificateError(f"{certificate} with {key} cannot be used ({_words(error)})") from None
    except OSError as error:
        raise CertificateError(f"{certificate} or {key} cannot be read ({error.strerror})") from None


def load_authorities(context: ssl.SSLContext, path: Path) -> None:
    """Have a context trust certificates.

    Raises:
        CertificateError: the file has none.
    """
    read_pem(path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise CertificateError(f"{path} holds no certificates of authorities ({_words(error)})") from None


def expiry_of(certificate: Path, key: Path, *, client: bool) -> dt.datetime:
    """When a pair that is good now expires: found by a handshake with itself, in memory.

    Args:
        certificate: its file.
        key: its file.
        client: whether it is shown by the side that connects.

    Raises:
        CertificateError: the files are not a pair, or no other side will take it.
    """
    listening, connecting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    connecting.check_hostname = False
    connecting.verify_mode = ssl.CERT_NONE
    load_pair(listening, certificate, key)
    load_pair(connecting, certificate, key)
    verifying = listening if client else connecting
    verifying.verify_mode = ssl.CERT_REQUIRED
    verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted for itself: who vouches for it is not asked
    verifying.load_verify_locations(cadata=_leaf(certificate))
    try:
        shown = _shake_hands(listening, connecting, listens=client)
    except ssl.SSLCertVerificationError as error:
        raise CertificateError(_why_not(certificate, error, client=client)) from None
    except ssl.SSLError as error:
        raise CertificateError(f"{certificate} with {key} cannot be used ({_words(error)})") from None
    return dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), dt.timezone.utc)


def _why_not(certificate: Path, error: ssl.SSLCertVerificationError, *, client: bool) -> str:
    if error.verify_code == _EXPIRED:
        return f"the certificate in {certificate} has expired"
    if error.verify_code == _NOT_YET:
        return f"the certificate in {certificate} is not valid yet"
    if error.verify_code == _PURPOSE:
        side = "a client" if client else "a server"
        return f"the certificate in {certificate} is not one for {side} (extended key usage)"
    return f"the certificate in {certificate} is not accepted ({error.verify_message})"


def _shake_hands(listening: ssl.SSLContext, connecting: ssl.SSLContext, *, listens: bool) -> dict[str, object]:
    """Connect two contexts; the certificate that the listening or else the connecting side has seen."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = listening.wrap_bio(up, down, server_side=True)
    client = connecting.wrap_bio(down, up)
    for _ in range(_STEPS):
        if _goes_on(client) + _goes_on(server) == 2:
            break
    return dict((server if listens else client).getpeercert() or {})


def _goes_on(side: ssl.SSLObject) -> bool:
    """Go on with its handshake; whether that is done."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _leaf(certificate: Path) -> bytes:
    """The first certificate of a file, as DER."""
    found = _FIRST.search(read_pem(certificate))
    try:
        return ssl.PEM_cert_to_DER_cert(found[0].decode("ascii") if found else "")
    except ValueError:
        raise CertificateError(f"{certificate} holds no certificate") from None


class _EncryptedError(Exception):
    """A key needs a password."""


def _no_password() -> str:
    raise _EncryptedError


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
